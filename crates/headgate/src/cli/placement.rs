//! Placement options of the command line.

use super::values::OrNone;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use headgate_api::placement::{
    DatastoreModel, DatastorePlacementPatch, DiskPlacementPatch, ModelSource,
};
use headgate_model::{DatastorePlacement, DiskPlacement, EmptiedBy};
use headgate_model::{Name, Overcommit};
use headgate_placement::{Affinity, Mobility, State};
use serde::de::DeserializeOwned;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};

/// One of the words of an enum that the catalog writes as a word.
fn word<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    words: &'static [&'static str],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words).try_map(|word| {
        let word: StrDeserializer<'_, Error> = word.as_str().into_deserializer();
        T::deserialize(word)
    })
}

/// The words of [`Affinity`], the former ones too.
fn affinity() -> impl TypedValueParser<Value = Affinity> {
    let words =
        [PossibleValue::new("none").alias("alone"), PossibleValue::new("vm").alias("with-vm")];
    PossibleValuesParser::new(words).map(|word| match word.as_str() {
        "vm" | "with-vm" => Affinity::Vm,
        _ => Affinity::None,
    })
}

/// A datastore's placement.
#[derive(Debug, Args)]
pub(super) struct DatastoreArgs {
    /// Class of storage, for disks that require one, or 'none'; datastores of different classes
    /// are balanced separately
    #[arg(long, value_name = "CLASS", help_heading = "Placement")]
    class: Option<OrNone<Name>>,
    /// Name of the device below, the same for all datastores that share it, or 'none' [default:
    /// directories of one file system share a device]
    #[arg(long, value_name = "DEVICE", help_heading = "Placement")]
    spindles: Option<OrNone<Name>>,
    /// Whether it takes disks: 'closed' takes no new ones, and 'maintenance' has advice move all
    /// disks away [default: active]
    #[arg(long, value_name = "STATE", help_heading = "Placement", value_parser = word::<State>(&["active", "closed", "maintenance"]))]
    placement: Option<State>,
    /// How many times the room of its file system the disks may be large together, 0.1 to 1000, or
    /// 'none'; larger disks are refused [default: 10]
    #[arg(long, value_name = "RATIO", help_heading = "Placement")]
    overcommit: Option<Overcommit>,
}

impl DatastoreArgs {
    pub(super) fn patch(self) -> DatastorePlacementPatch {
        DatastorePlacementPatch {
            class: OrNone::change(self.class),
            spindles: OrNone::change(self.spindles),
            state: self.placement,
            emptied_by: None,
            overcommit: self.overcommit,
        }
    }
}

/// A disk's placement.
#[derive(Debug, Args)]
pub(super) struct DiskArgs {
    /// Class of datastore that the disk must be on, whatever its own class says, or 'none'
    #[arg(long, value_name = "CLASS", help_heading = "Placement")]
    datastore_class: Option<OrNone<Name>>,
    /// Whether advice may move the disk: 'free' or 'pinned' [default: free]
    #[arg(long, value_name = "WORD", help_heading = "Placement", value_parser = word::<Mobility>(&["free", "pinned"]))]
    mobility: Option<Mobility>,
    /// Disks to share a datastore with: 'none', or 'vm' for the other disks of its virtual machine
    /// with this affinity [default: none]
    #[arg(long, alias = "company", value_name = "WORD", help_heading = "Placement", value_parser = affinity())]
    affinity: Option<Affinity>,
}

impl DiskArgs {
    pub(super) fn patch(self) -> DiskPlacementPatch {
        DiskPlacementPatch {
            class: OrNone::change(self.datastore_class),
            mobility: self.mobility,
            affinity: self.affinity,
        }
    }

    pub(super) fn new_disk(self) -> DiskPlacement {
        self.patch().apply(DiskPlacement::default())
    }
}

/// The lines that describe a datastore's placement and its model.
pub(super) fn datastore(
    placement: &DatastorePlacement,
    model: Option<&DatastoreModel>,
) -> Vec<(&'static str, Option<String>)> {
    let state = match placement.state {
        State::Active => None,
        State::Closed => Some("closed: no disk is placed on it".to_owned()),
        State::Maintenance => Some(match placement.emptied_by {
            EmptiedBy::Operator => "in maintenance: it is to be emptied".to_owned(),
            EmptiedBy::Daemon => "in maintenance: its disks are moved away".to_owned(),
        }),
    };
    let mut lines = vec![
        ("class", placement.class.as_ref().map(Name::to_string)),
        ("spindles", placement.spindles.as_ref().map(Name::to_string)),
        ("placement", state),
    ];
    if let Some(model) = model {
        let none = || "none yet".to_owned();
        lines.push(("model", Some(model.text.clone().unwrap_or_else(none))));
        lines.push(("learnt from", Some(learnt_from(model))));
        lines.push(("not learnt", model.refusal.clone()));
    }
    lines
}

fn learnt_from(model: &DatastoreModel) -> String {
    let left_out: Vec<String> =
        model.left_out.iter().map(|(why, n)| format!("{n} ({why})")).collect();
    let day = format!("{} intervals of the last 24 h", model.intervals);
    let left_out = match left_out.is_empty() {
        true => String::new(),
        false => format!("; left out: {}", left_out.join(", ")),
    };
    match source(model) {
        Some(source) => format!("{source}; there are {day}{left_out}"),
        None => format!("{day}{left_out}"),
    }
}

/// The source of a model, unless it is the last day.
pub(super) fn source(model: &DatastoreModel) -> Option<String> {
    match model.source? {
        ModelSource::Day | ModelSource::Recorded => None,
        ModelSource::Month => Some("a few points of each hour of the last 30 days".into()),
        ModelSource::Earlier => {
            let at = model.learnt_at.map_or_else(|| "earlier".into(), super::output::date);
            Some(format!("24 h that ended on {at}"))
        }
    }
}

/// The lines that describe a disk's placement.
pub(super) fn disk(placement: &DiskPlacement) -> Vec<(&'static str, Option<String>)> {
    let mobility = match placement.mobility {
        Mobility::Free => None,
        Mobility::Pinned => Some("pinned: advice does not move it".to_owned()),
    };
    let affinity = match placement.affinity {
        Affinity::None => None,
        Affinity::Vm => {
            Some("vm: on one datastore with the other such disks of its machine".to_owned())
        }
    };
    vec![
        ("class", placement.class.as_ref().map(Name::to_string)),
        ("mobility", mobility),
        ("affinity", affinity),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_when_a_model_is_not_of_the_last_day() {
        let model = |source: &str| -> DatastoreModel {
            serde_json::from_str(&format!(
                r#"{{"ability": 1.0, "slope_ns": 1.0, "slope_low_ns": 1.0, "slope_high_ns": 1.0, "r_squared": 1.0, "text": "t",
                    "model": null, "refusal": null, "intervals": 3, "left_out": {{"too few reads": 9}}{source}}}"#
            ))
            .unwrap()
        };
        let day = "3 intervals of the last 24 h; left out: 9 (too few reads)";
        for (source, expected) in [
            ("", day.to_owned()),
            (r#", "source": "day""#, day.to_owned()),
            (
                r#", "source": "month""#,
                format!("a few points of each hour of the last 30 days; there are {day}"),
            ),
            (
                r#", "source": "earlier", "learnt_at": 1790000000"#,
                format!("24 h that ended on 2026-09-21 14:13 UTC; there are {day}"),
            ),
        ] {
            assert_eq!(learnt_from(&model(source)), expected);
        }
    }
}
