//! Wire types of where the time of a disk's requests goes: `docs/blame.md` has the definition.

use headgate_model::{Name, Sender, Waits};
use serde::{Deserialize, Serialize};

/// The parts of a disk's waiting time by cause, from 0 to 1; together 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Causes {
    /// At the device, or on the way there.
    pub device: f64,
    /// For the disk's own limits.
    pub limit: f64,
    /// Behind its own requests at the device.
    pub own: f64,
    /// Behind the requests of other disks at the device.
    pub neighbours: f64,
    /// For a window that is narrower than the widest it was.
    pub window: f64,
    /// Held for the storage's trouble.
    pub held: f64,
}

impl Causes {
    /// Each with its name.
    pub fn each(&self) -> [(&'static str, f64); 6] {
        [
            ("neighbours", self.neighbours),
            ("limit", self.limit),
            ("window", self.window),
            ("own", self.own),
            ("device", self.device),
            ("held", self.held),
        ]
    }
}

/// A disk that another waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Blamed {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub disk: Name,
    /// Whether it is a copy of that disk which is waited for, and not the disk's clients.
    #[serde(default)]
    pub copy: bool,
    /// The part of the other's waiting time, 0 to 1.
    pub part: f64,
}

/// Where the time of a disk's requests went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Blame {
    /// Over how many seconds.
    pub seconds: f64,
    /// Requests under way on average: their waiting time in a second, in seconds.
    pub waiting: f64,
    /// By cause.
    pub causes: Causes,
    /// The neighbours that took the most, those first. What is left of `causes.neighbours` is all
    /// others'.
    pub neighbours: Vec<Blamed>,
}

impl Blame {
    /// Of what a disk waited in so many seconds. `None` where it asked for nothing.
    pub fn of(seconds: f64, waits: &Waits) -> Option<Blame> {
        let total = waits.total();
        if total == 0 || seconds <= 0.0 {
            return None;
        }
        let part = |waited: u128| waited as f64 / total as f64;
        let neighbours = waits.named.iter().map(|one| Blamed {
            disk: one.disk.clone(),
            copy: one.sender == Sender::Copy,
            part: part(one.waited.into()),
        });
        Some(Blame {
            seconds,
            waiting: total as f64 / 1e9 / seconds,
            causes: Causes {
                device: part(waits.device),
                limit: part(waits.limit),
                own: part(waits.own),
                neighbours: part(waits.neighbours),
                window: part(waits.window),
                held: part(waits.held),
            },
            neighbours: neighbours.collect(),
        })
    }

    /// In words, the largest parts first: `flooder 61 %, its limit 20 %, the device 19 %`. Parts
    /// below 1 % are left out.
    pub fn words(&self) -> String {
        let named: f64 = self.neighbours.iter().map(|one| one.part).sum();
        let mut parts: Vec<(String, f64)> = vec![
            ("its limit".into(), self.causes.limit),
            ("the window".into(), self.causes.window),
            ("its own requests".into(), self.causes.own),
            ("the device".into(), self.causes.device),
            ("storage in trouble".into(), self.causes.held),
            ("other neighbours".into(), self.causes.neighbours - named),
        ];
        parts.extend(self.neighbours.iter().map(|one| {
            let copy = if one.copy { "a copy of " } else { "" };
            (format!("{copy}{}", one.disk), one.part)
        }));
        parts.retain(|(_, part)| *part >= 0.01);
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        let texts: Vec<String> =
            parts.iter().map(|(who, part)| format!("{who} {:.0} %", part * 100.0)).collect();
        texts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_model::NeighbourWait;

    #[test]
    fn the_largest_parts_are_said_first() {
        let neighbour = |disk: &str, sender, waited| {
            let disk = disk.parse().unwrap();
            NeighbourWait { disk, sender, entered: 0, waited }
        };
        let named =
            vec![neighbour("flooder", Sender::Clients, 550), neighbour("db", Sender::Copy, 40)];
        let waits = Waits { device: 190, limit: 200, neighbours: 610, named, ..Waits::default() };
        let blame = Blame::of(2e-7, &waits).unwrap();
        assert_eq!(
            blame.words(),
            "flooder 55 %, its limit 20 %, the device 19 %, a copy of db 4 %, other neighbours 2 %"
        );
        assert!((blame.waiting - 5.0).abs() < 1e-9, "{}", blame.waiting);
        assert_eq!(Blame::of(1.0, &Waits::default()), None);
    }
}
