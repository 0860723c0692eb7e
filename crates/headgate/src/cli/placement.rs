//! What placement is to know, on the command line.

use super::values::OrNone;
use crate::api::placement::{DatastoreModel, DatastorePlacementPatch, DiskPlacementPatch, ModelSource};
use crate::catalog::{DatastorePlacement, DiskPlacement};
use crate::name::Name;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use headgate_placement::{Company, Mobility, State};
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

/// A datastore's placement.
#[derive(Debug, Args)]
pub(super) struct DatastoreArgs {
    /// What kind of storage it is, for disks that ask for one; datastores of different classes are balanced apart. Or 'none'
    #[arg(long, value_name = "CLASS", help_heading = "Placement")]
    class: Option<OrNone<Name>>,
    /// The device under it, where datastores share one: the same word for each. Or 'none' [default: directories of one file system
    /// share one]
    #[arg(long, value_name = "DEVICE", help_heading = "Placement")]
    spindles: Option<OrNone<Name>>,
    /// Whether disks are placed on it: 'closed' takes no more, 'maintenance' is to be emptied [default: active]
    #[arg(long, value_name = "STATE", help_heading = "Placement", value_parser = word::<State>(&["active", "closed", "maintenance"]))]
    placement: Option<State>,
}

impl DatastoreArgs {
    pub(super) fn patch(self) -> DatastorePlacementPatch {
        DatastorePlacementPatch {
            class: OrNone::change(self.class),
            spindles: OrNone::change(self.spindles),
            state: self.placement,
        }
    }
}

/// A disk's placement.
#[derive(Debug, Args)]
pub(super) struct DiskArgs {
    /// The class of datastore it must be on, or 'none'
    #[arg(long, value_name = "CLASS", help_heading = "Placement")]
    class: Option<OrNone<Name>>,
    /// Whether advice may move it: 'pinned' stays where it is [default: free]
    #[arg(long, value_name = "WORD", help_heading = "Placement", value_parser = word::<Mobility>(&["free", "pinned"]))]
    mobility: Option<Mobility>,
    /// With whom it is kept: 'with-vm' on one datastore with the other disks of its machine that say so [default: alone]
    #[arg(long, value_name = "WORD", help_heading = "Placement", value_parser = word::<Company>(&["alone", "with-vm"]))]
    company: Option<Company>,
}

impl DiskArgs {
    pub(super) fn patch(self) -> DiskPlacementPatch {
        DiskPlacementPatch {
            class: OrNone::change(self.class),
            mobility: self.mobility,
            company: self.company,
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
        State::Maintenance => Some("in maintenance: it is to be emptied".to_owned()),
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
    let left_out: Vec<String> = model.left_out.iter().map(|(why, n)| format!("{n} ({why})")).collect();
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

/// What a model is learnt from when it is not the last day.
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
    let company = match placement.company {
        Company::Alone => None,
        Company::WithVm => Some("with the disks of its machine that say so".to_owned()),
    };
    vec![
        ("class", placement.class.as_ref().map(Name::to_string)),
        ("mobility", mobility),
        ("company", company),
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
