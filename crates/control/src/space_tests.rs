//! Space as placement and advice see it: what grows, what is promised whole, what is shared.

use super::pools::by_class;
use super::testing::Bench;
use crate::ControlError;
use headgate_api::placement::PoolAdvice;
use headgate_api::types::{Disk, DiskCreate};
use headgate_model::Lookback;
use headgate_placement::{Datastore, Permille, Pool, Provisioning, State, Stay};
use headgate_units::Bytes;
use serde_json::json;

fn create(bench: &Bench, body: serde_json::Value) -> Result<Disk, ControlError> {
    let created = bench.control.create_disk(serde_json::from_value::<DiskCreate>(body).unwrap());
    Ok(created?.now)
}

fn advice(bench: &Bench) -> Vec<PoolAdvice> {
    bench.control.advice(Lookback::default()).unwrap().pools
}

fn with_drive(bench: &Bench) {
    let drive = "ssd=8M,op=50%,dies=2,planes=2,block=16";
    let flash =
        json!({"name": "drive", "backend": {"emulated": drive}, "placement": {"class": "flash"}});
    bench.control.add_datastore(serde_json::from_value(flash).unwrap()).unwrap();
}

#[test]
fn a_drive_is_filled_to_its_last_byte_and_not_relieved() {
    let bench = Bench::new();
    with_drive(&bench);
    let disk = |name: &str, mib: u64| json!({"name": name, "size": mib << 20, "placement": {"class": "flash"}});
    assert_eq!(create(&bench, disk("a", 5)).unwrap().datastore.as_str(), "drive");
    let error = create(&bench, disk("b", 4)).unwrap_err().to_string();
    assert!(error.contains("on 'drive', 4 MiB do not fit: 3 MiB are free"), "{error}");
    create(&bench, disk("b", 3)).unwrap();
    let pools = advice(&bench);
    let pool = pools.iter().find(|pool| pool.class.is_some()).unwrap();
    let drive = &pool.advice.before.datastores[0];
    assert_eq!((drive.used, drive.full), (Bytes::from_mib(8), Permille(1_000)));
    assert_eq!(pool.advice.moves, []);
    let full = |stay: &headgate_placement::Staying| matches!(stay.why, Stay::Full { .. });
    assert!(!pool.advice.stays.iter().any(full), "{:?}", pool.advice.stays);
}

#[test]
fn datastores_on_one_file_system_have_its_space_together() {
    let bench = Bench::new();
    with_drive(&bench);
    create(&bench, json!({"name": "d", "size": 4 << 20, "datastore": "array"})).unwrap();
    let image = bench.temp.path().join("emulated/array/d.img");
    std::fs::write(image, vec![1; 4 << 20]).unwrap();
    let pools = advice(&bench);
    let pool = pools.iter().find(|pool| pool.class.is_none()).unwrap();
    let [array, default] = &pool.pool.datastores[..] else { panic!("{:?}", pool.pool.datastores) };
    assert!(array.volume.is_some() && array.volume == default.volume, "{array:?} {default:?}");
    assert_eq!(pool.pool.disks[0].used, Bytes::from_mib(4));
    let used: Vec<Bytes> = pool.advice.before.datastores.iter().map(|store| store.used).collect();
    assert!(used[0] == used[1] && used[0] >= array.foreign.max(default.foreign), "{used:?}");
    let drive =
        pools.iter().flat_map(|pool| &pool.pool.datastores).find(|store| store.class.is_some());
    let drive = drive.unwrap();
    assert_eq!((&drive.volume, drive.provisioning), (&None, Provisioning::Thick), "it has its own");
}

#[test]
fn disks_of_another_class_take_space_of_a_shared_file_system() {
    let store = |name: &str, class: Option<&str>| Datastore {
        name: name.into(),
        class: class.map(Into::into),
        spindles: None,
        volume: Some("fs".into()),
        capacity: Bytes::from_gib(100),
        foreign: Bytes::from_gib(3),
        provisioning: Provisioning::Thin,
        reservable: None,
        promisable: None,
        state: State::Active,
        model: None,
    };
    let disk = |name: &str, datastore: &str, used: u64| headgate_placement::PoolDisk {
        name: name.into(),
        vm: None,
        datastore: datastore.into(),
        size: Bytes::from_gib(20),
        used: Bytes::from_gib(used),
        reservation: None,
        workload: None,
        mobility: Default::default(),
        class: None,
        affinity: Default::default(),
    };
    let whole = Pool {
        datastores: vec![store("plain", None), store("fast", Some("fast"))],
        disks: vec![disk("a", "plain", 7), disk("b", "fast", 11)],
        ..Pool::default()
    };
    let foreign: Vec<(String, u64)> = by_class(&whole)
        .into_iter()
        .flat_map(|(_, pool)| pool.datastores)
        .map(|store| (store.name.to_string(), store.foreign.0 >> 30))
        .collect();
    assert_eq!(foreign, [("plain".to_owned(), 14), ("fast".to_owned(), 10)]);
}
