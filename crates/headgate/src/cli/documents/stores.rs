//! Datastores in documents: what an administrator sets of those that there are, in the words of
//! `datastore set`. What a document does not say stays as it is.

use super::fields::{some, thing};
use super::nodes::{At, Fields, RATE, Read};
use headgate_api::apply::WantedDatastore;
use headgate_api::placement::DatastorePlacementPatch;
use headgate_api::types::{Change, Datastore, DatastorePatch};
use headgate_api::windows::WindowPatch;
use headgate_devices::LayerSpec;
use headgate_model::{
    BoardPlace, CapacitySource, DatastorePlacement, Name, Overcommit, PersistentReservations,
    Threshold, WindowLaw,
};
use headgate_placement::State;
use headgate_qos::{Batch, Narrow};
use headgate_units::{Iops, Nanos};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Display;
use std::str::FromStr;

const NONE: &str = "none";

/// A value that can be taken away by 'none'.
fn change<T: FromStr<Err: Display>>(
    fields: &mut Fields<'_>,
    name: &'static str,
    of: &str,
    expected: &str,
) -> Read<Change<T>> {
    let Some(at) = fields.take(name).filter(|at| !at.is_null()) else { return Ok(Change::Keep) };
    let what = format!("{name} of {of}");
    match at.text(&what)? {
        NONE => Ok(Change::Remove),
        _ => at.value(&what, &format!("{expected}, or none")).map(Change::Set),
    }
}

/// A value that has a few words.
fn word<T: DeserializeOwned>(
    fields: &mut Fields<'_>,
    name: &'static str,
    of: &str,
    expected: &str,
) -> Read<Option<T>> {
    let Some(at) = fields.take(name).filter(|at| !at.is_null()) else { return Ok(None) };
    let what = format!("{name} of {of}");
    let text = at.text(&what)?;
    serde_json::from_value(Value::from(text))
        .map(Some)
        .or_else(|_| at.wrong(format!("{what}: '{text}' is no such word"), expected))
}

/// Something that the API takes as text.
fn as_text<T: FromStr<Err: Display> + Display>(
    fields: &mut Fields<'_>,
    name: &'static str,
    of: &str,
    expected: &str,
) -> Read<Option<String>> {
    Ok(fields.may::<T>(name, of, expected)?.map(|value| value.to_string()))
}

fn nanos(change: Change<Nanos>) -> Change<u64> {
    match change {
        Change::Keep => Change::Keep,
        Change::Remove => Change::Remove,
        Change::Set(Nanos(n)) => Change::Set(n),
    }
}

fn window(fields: &mut Fields<'_>, of: &str) -> Read<WindowPatch> {
    const SLOTS: &str = "requests, 1 to 4096";
    Ok(WindowPatch {
        latency_threshold: as_text::<Threshold>(
            fields,
            "latency_threshold",
            of,
            "a time such as 30ms, auto or none",
        )?,
        min: fields.may("window_min", of, SLOTS)?,
        max: change(fields, "window_max", of, SLOTS)?,
        period_ns: nanos(change(fields, "window_period", of, "a time such as 4s")?),
        board: as_text::<BoardPlace>(fields, "board", of, "a directory, etcd=NAME, auto or none")?,
        law: as_text::<WindowLaw>(fields, "window_law", of, "measured, slots or published")?,
        narrow: as_text::<Narrow>(fields, "narrow_window", of, "reservations or never")?,
    })
}

fn placement(fields: &mut Fields<'_>, of: &str) -> Read<DatastorePlacementPatch> {
    const STATES: &str = "active, closed or maintenance";
    Ok(DatastorePlacementPatch {
        class: change::<Name>(fields, "class", of, "a class of datastores")?,
        spindles: change::<Name>(fields, "spindles", of, "the name of a device")?,
        state: word::<State>(fields, "placement", of, STATES)?,
        emptied_by: None,
        overcommit: fields.may::<Overcommit>("overcommit", of, "0.1 to 1000, or none")?,
    })
}

fn layers(fields: &mut Fields<'_>, of: &str) -> Read<Option<Vec<String>>> {
    let Some(at) = fields.take("layers").filter(|at| !at.is_null()) else { return Ok(None) };
    let what = format!("layers of {of}");
    let one = |at: At<'_>| {
        let layer: LayerSpec = at.value(&what, "a layer of 'headgate datastore set --layer'")?;
        Ok(layer.to_string())
    };
    at.list(&what)?.into_iter().map(one).collect::<Read<_>>().map(Some)
}

pub(super) fn read(at: At<'_>) -> Read<WantedDatastore> {
    let mut fields = at.fields("a datastore")?;
    let (name, of) = fields.name("datastore")?;
    let batch = change::<Batch>(&mut fields, "batch", &of, "such as 8,span=4M")?;
    let reservations = "auto, require or off";
    let settings = DatastorePatch {
        queue_depth: fields.may("queue_depth", &of, "requests, 1 to 4096")?,
        capacity: Change::Keep,
        plug_ns: fields.may::<Nanos>("plug", &of, "a time, 0us to 1ms")?.map(|Nanos(n)| n),
        batch: match batch {
            Change::Keep => Change::Keep,
            Change::Remove => Change::Remove,
            Change::Set(batch) => Change::Set(batch.to_string()),
        },
        window: window(&mut fields, &of)?,
        placement: placement(&mut fields, &of)?,
        layers: layers(&mut fields, &of)?,
        persistent_reservations: word::<PersistentReservations>(
            &mut fields,
            "persistent_reservations",
            &of,
            reservations,
        )?,
        add_servers: Vec::new(),
        connections: fields.may("connections", &of, "1 to 16")?,
    };
    let capacity = fields.may::<Iops>("capacity", &of, RATE)?;
    fields.end(&of)?;
    Ok(WantedDatastore { at: Some(at.line()), name, capacity, settings })
}

/// A time as it is read back: a whole number of the largest unit that it is a multiple of.
fn time(nanos: u64) -> Value {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let unit = units.into_iter().find(|(unit, _)| nanos.is_multiple_of(*unit));
    let (unit, word) = unit.unwrap_or((1, "ns"));
    format!("{}{word}", nanos / unit).into()
}

/// What is set of a datastore. What was measured or follows from a model is said by nobody.
pub(super) fn write(store: &Datastore) -> Value {
    let set = store.capacity.as_ref().filter(|known| known.source == CapacitySource::Set);
    let (window, none) = (&store.window, || Some(Value::from(NONE)));
    let DatastorePlacement { class, spindles, state, emptied_by: _, overcommit } = &store.placement;
    let layers: Vec<Value> = store.layers.iter().map(|layer| layer.clone().into()).collect();
    let word = |word: serde_json::Result<Value>| word.ok();
    thing([
        ("name", some(Some(&store.name))),
        ("capacity", set.map(|capacity| capacity.iops.get().into())),
        ("queue_depth", Some(store.queue_depth.into())),
        ("plug", Some(time(store.plug_ns)).filter(|_| store.plug_ns > 0)),
        ("batch", some(store.batch.as_ref())),
        ("layers", Some(layers).filter(|all| !all.is_empty()).map(Value::from)),
        ("latency_threshold", Some(window.latency_threshold.clone().into())),
        ("window_min", Some(window.min.into())),
        ("window_max", window.max_set.map(Value::from).or_else(none)),
        ("window_period", window.period_set_ns.map(time).or_else(none)),
        ("board", Some(window.board.clone().into())),
        ("window_law", Some(window.law.clone().into())),
        ("narrow_window", Some(window.narrow.clone().into())),
        ("class", some(class.as_ref())),
        ("spindles", some(spindles.as_ref())),
        ("placement", word(serde_json::to_value(state))),
        ("overcommit", some(overcommit.as_ref())),
        (
            "persistent_reservations",
            store
                .persistent_reservations
                .as_ref()
                .and_then(|kept| word(serde_json::to_value(kept.mode))),
        ),
        ("connections", store.backend.connections.map(Value::from)),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::read::read_all;
    use super::super::write::{Written, as_json, as_yaml};
    use super::*;
    use serde_json::json;

    fn read_text(text: &str) -> Read<WantedDatastore> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("site.yaml");
        std::fs::write(&file, text).unwrap();
        Ok(read_all("site".parse().unwrap(), &[file])?.datastores.remove(0))
    }

    const ALL: &str = "datastores:\n- name: fast\n  capacity: 5000\n  queue_depth: 64\n  plug: 100us\n  \
        batch: 8,span=4M\n  latency_threshold: 30ms\n  window_min: 2\n  window_max: 32\n  \
        window_period: 2s\n  board: none\n  window_law: slots\n  narrow_window: never\n  class: ssd\n  \
        spindles: sda\n  placement: closed\n  overcommit: 2.5\n  layers: ['trace=10']\n  \
        persistent_reservations: require\n  connections: 4\n";

    #[test]
    fn everything_that_can_be_set_is_read() {
        let read = read_text(ALL).unwrap();
        assert_eq!(read.capacity, Iops::new(5000).ok());
        assert_eq!(
            serde_json::to_value(&read.settings).unwrap(),
            json!({
                "queue_depth": 64, "plug_ns": 100_000, "batch": "8,span=4M",
                "window": {"latency_threshold": "30ms", "min": 2, "max": 32,
                    "period_ns": 2_000_000_000_u64, "board": "none", "law": "slots", "narrow": "never"},
                "placement": {"class": "ssd", "spindles": "sda", "state": "closed", "overcommit": "2.5"},
                "layers": ["trace=10"], "persistent_reservations": "require", "connections": 4,
            })
        );
        let none = "datastores:\n- {name: x, batch: none, window_max: none, window_period: none, \
                    class: none, spindles: none, layers: []}\n";
        assert_eq!(
            serde_json::to_value(read_text(none).unwrap().settings).unwrap(),
            json!({"batch": null, "window": {"max": null, "period_ns": null},
                "placement": {"class": null, "spindles": null}, "layers": []})
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_what_was_expected() {
        for (right, wrong, line, words, expected) in [
            ("queue_depth: 64", "queue_depth: deep", 4, "queue_depth of datastore 'fast'", "4096"),
            ("plug: 100us", "plug: 100", 5, "plug", "a time"),
            ("batch: 8,span=4M", "batch: many", 6, "batch", "or none"),
            ("latency_threshold: 30ms", "latency_threshold: 30", 7, "30", "auto or none"),
            ("board: none", "board: here", 11, "board", "etcd=NAME"),
            ("placement: closed", "placement: shut", 16, "'shut' is no such word", "maintenance"),
            ("overcommit: 2.5", "overcommit: much", 17, "overcommit", "0.1 to 1000"),
            ("layers: ['trace=10']", "layers: ['lace=10']", 18, "lace", "--layer"),
            ("connections: 4", "connexions: 4", 20, "no field 'connexions'", "connections"),
        ] {
            let text = ALL.replacen(right, wrong, 1);
            assert_ne!(text, ALL, "{wrong}");
            let body = read_text(&text).unwrap_err().body();
            let at = format!("site.yaml:{line}: ");
            assert!(body.error.contains(&at) && body.error.contains(words), "{wrong}: {body:?}");
            assert!(body.expected.as_ref().unwrap().contains(expected), "{wrong}: {body:?}");
        }
    }

    /// What is written of a datastore says, when it is read, what there is.
    #[test]
    fn what_is_written_is_read_as_it_was() {
        let store: Datastore = serde_json::from_value(json!({
            "name": "1e3", "state": "serving", "reason": null,
            "backend": {"nbd": "nbd://far", "connections": 4}, "scheduler": "mclock",
            "queue_depth": 64, "cost_model": "unit", "plug_ns": 100_000, "batch": "8,span=4M",
            "window": {"latency_threshold": "none", "found": null, "min": 4, "max": 64,
                "period_ns": 1_500_000_000, "period_set_ns": 1_500_000_000, "board": "auto",
                "law": "measured", "narrow": "never", "now": null},
            "capacity": {"iops": 700, "source": "set"}, "reservable_iops": 700, "reserved_iops": 0,
            "overbooked_iops": 0, "disks": 0, "layers": ["trace=10"],
            "placement": {"class": "ssd", "state": "active", "overcommit": "2.5"},
        }))
        .unwrap();
        let written = Written { datastores: Some(vec![store]), ..Written::default() };
        for text in [as_yaml(&written), as_json(&written).to_string()] {
            let read = read_text(&text).unwrap();
            assert_eq!((read.name.as_str(), read.capacity), ("1e3", Iops::new(700).ok()));
            assert_eq!(
                serde_json::to_value(&read.settings).unwrap(),
                json!({
                    "queue_depth": 64, "plug_ns": 100_000, "batch": "8,span=4M",
                    "window": {"latency_threshold": "none", "min": 4, "max": null,
                        "period_ns": 1_500_000_000, "board": "auto", "law": "measured", "narrow": "never"},
                    "placement": {"class": "ssd", "state": "active", "overcommit": "2.5"},
                    "layers": ["trace=10"], "connections": 4,
                }),
                "{text}"
            );
        }
    }
}
