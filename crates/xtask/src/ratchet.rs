//! Ratchets: figures that may sink and never rise.

use crate::tree::Failure;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use toml::{Table, Value};

/// Where the ratchets stand, below the root.
pub const FILE: &str = "crates/xtask/ratchet.toml";

/// What to do about a figure that sank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Leave the ratchet where it is.
    Check,
    /// Lower it to the figure.
    Tighten,
}

/// Figures by name.
pub type Figures = BTreeMap<String, usize>;

/// What may stay as it is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ratchets {
    /// Lines of functions that are too long.
    pub functions: Figures,
    /// Lines of files that are too long.
    pub files: Figures,
    /// Files of a crate that take part in a cycle of more than two.
    pub cycles: Figures,
}

impl Ratchets {
    /// Reads the ratchets of the checkout at `root`.
    pub fn read(root: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(root.join(FILE)).map_err(|e| format!("{FILE}: {e}"))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        let table: Table = text.parse()?;
        let figures = |name: &str| -> Result<Figures, Failure> {
            let entries = table.get(name).and_then(Value::as_table);
            let entries = entries.ok_or_else(|| format!("{FILE}: no table [{name}]"))?;
            let figure = |(key, value): (&String, &Value)| {
                let figure = value.as_integer().and_then(|v| usize::try_from(v).ok());
                Ok((key.clone(), figure.ok_or_else(|| format!("{FILE}: {key}: not a count"))?))
            };
            entries.iter().map(figure).collect()
        };
        Ok(Self {
            functions: figures("functions")?,
            files: figures("files")?,
            cycles: figures("cycles")?,
        })
    }

    /// Lowers the ratchets to `now` and forgets what is mended.
    pub fn tighten(&mut self, now: &Self) {
        tighten(&mut self.functions, &now.functions);
        tighten(&mut self.files, &now.files);
        tighten(&mut self.cycles, &now.cycles);
    }

    /// Writes the ratchets of the checkout at `root`.
    pub fn write(&self, root: &Path) -> Result<(), Failure> {
        Ok(std::fs::write(root.join(FILE), self.text())?)
    }

    fn text(&self) -> String {
        let mut text = String::from(
            "# What `cargo xtask tidy` still tolerates: these figures may sink and never rise.\n\
             # `cargo xtask tidy --tighten` lowers them to what is there now.\n",
        );
        let tables = [
            ("functions", "Lines of functions above 80, by file and name.", &self.functions),
            ("files", "Lines of files above 600, by directory and name.", &self.files),
            ("cycles", "Files of a crate in a cycle of more than two.", &self.cycles),
        ];
        for (name, meaning, figures) in tables {
            let _ = write!(text, "\n# {meaning}\n[{name}]\n");
            for (key, figure) in figures {
                let _ = writeln!(text, "\"{key}\" = {figure}");
            }
        }
        text
    }
}

fn tighten(kept: &mut Figures, now: &Figures) {
    kept.retain(|key, _| now.contains_key(key));
    for (key, figure) in kept {
        *figure = (*figure).min(now[key]);
    }
}

/// The names whose figure is above what the ratchet allows, with that bound; `new` is the bound
/// for those it does not name.
pub fn above(now: &Figures, kept: &Figures, new: usize) -> Vec<(String, usize)> {
    let bound = |key: &String| kept.get(key).copied().unwrap_or(new);
    let wrong = now.iter().filter(|(key, figure)| **figure > bound(key));
    wrong.map(|(key, _)| (key.clone(), bound(key))).collect()
}

/// How many entries of the ratchets could be lowered or removed.
pub fn slack(now: &Ratchets, kept: &Ratchets) -> usize {
    let pairs =
        [(&now.functions, &kept.functions), (&now.files, &kept.files), (&now.cycles, &kept.cycles)];
    pairs.iter().map(|(now, kept)| slack_of(now, kept)).sum()
}

fn slack_of(now: &Figures, kept: &Figures) -> usize {
    kept.iter().filter(|(key, figure)| now.get(*key).is_none_or(|now| now < figure)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(list: &[(&str, usize)]) -> Figures {
        list.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect()
    }

    #[test]
    fn what_grows_or_is_new_fails_and_what_shrinks_passes() {
        let kept = figures(&[("a", 90), ("b", 100)]);
        assert_eq!(above(&figures(&[("a", 90), ("b", 99)]), &kept, 80), []);
        assert_eq!(above(&figures(&[("a", 91)]), &kept, 80), [("a".to_owned(), 90)]);
        assert_eq!(above(&figures(&[("c", 81)]), &kept, 80), [("c".to_owned(), 80)]);
    }

    #[test]
    fn tightening_lowers_and_forgets_and_never_raises() {
        let mut kept = figures(&[("a", 90), ("b", 100), ("gone", 85)]);
        let now = figures(&[("a", 95), ("b", 99), ("new", 200)]);
        assert_eq!(slack_of(&now, &kept), 2);
        tighten(&mut kept, &now);
        assert_eq!(kept, figures(&[("a", 90), ("b", 99)]));
    }

    #[test]
    fn what_is_written_is_read() {
        let kept = Ratchets {
            functions: figures(&[("a.rs:f", 90)]),
            files: figures(&[("b/a.rs", 601)]),
            cycles: figures(&[("x", 3)]),
        };
        assert_eq!(Ratchets::parse(&kept.text()).unwrap(), kept);
    }
}
