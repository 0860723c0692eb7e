//! A pool on disk: what placement goes by, without a daemon.
//!
//! A directory holds `pool.toml`, and beside it what it names: recorded intervals of datastores,
//! block traces of disks. `headgate advise --save` writes one, `headgate advise --from` reads it,
//! `docs/placement.md` describes it.

mod error;
mod file;
mod points;
mod replay;

pub(crate) use error::RecordedError;
pub(crate) use file::PoolFile;

use file::{DatastoreSource, WorkloadSource};
use headgate_api::placement::{AdviceReport, DatastoreModel, ModelPoint, ModelSource, PoolAdvice};
use headgate_control::datastore_model;
use headgate_history::Learnt;
use headgate_placement::{Pool, WorkloadMeter};
use headgate_units::Nanos;
use std::collections::BTreeMap;
use std::path::Path;

/// When a pool on disk is, unless its history says otherwise: long after everything.
const NOW: Nanos = Nanos::from_secs(10 * 365 * 24 * 3_600);

/// Reads a directory, learns what is to be learnt, and advises.
pub(crate) fn advise(directory: &Path) -> Result<AdviceReport, RecordedError> {
    let file = PoolFile::read(directory)?;
    let (pool, models) = learn(directory, &file)?;
    let advice = headgate_placement::advise(&pool)?;
    let pools = vec![PoolAdvice { class: None, pool, advice }];
    Ok(AdviceReport {
        window: None,
        pools,
        outside: Vec::new(),
        models,
        reviews: Vec::new(),
        automatic: None,
    })
}

fn learn(
    directory: &Path,
    file: &PoolFile,
) -> Result<(Pool, BTreeMap<String, DatastoreModel>), RecordedError> {
    let mut meters: BTreeMap<String, WorkloadMeter> = BTreeMap::new();
    let (mut datastores, mut models) = (Vec::new(), BTreeMap::new());
    for datastore in &file.datastores {
        let learnt = match datastore.source(directory)? {
            DatastoreSource::Unknown => Learnt::of_points(&[]),
            DatastoreSource::Model(model) => Learnt::of_model(model),
            DatastoreSource::Points(path) => Learnt::of_points(&points::read(&path)?),
            DatastoreSource::Device(device) => {
                let traces = file.traces_on(datastore.name.as_str());
                let replayed = replay::run(directory, &device, &traces).map_err(|error| {
                    RecordedError::Replay { datastore: datastore.name.as_str().into(), error }
                })?;
                meters.extend(replayed.disks);
                Learnt::of_points(&replayed.points)
            }
        };
        models.insert(datastore.name.as_str().to_owned(), datastore_model(&learnt));
        datastores.push(datastore.datastore(learnt.model));
    }
    let disks = file
        .disks
        .iter()
        .map(|disk| {
            let workload = match disk.workload_source() {
                WorkloadSource::Unknown => None,
                WorkloadSource::Profile(profile) => Some(profile),
                WorkloadSource::Trace => {
                    meters.get(disk.name.as_str()).and_then(WorkloadMeter::profile)
                }
            };
            disk.disk(workload)
        })
        .collect();
    let pool = Pool { now: NOW, datastores, disks, history: Vec::new(), rules: file.rules.clone() };
    Ok((pool, models))
}

/// Writes what a daemon knows, for [`advise`] to read, with the points of each datastore's model;
/// and the model itself in their place where it is not that of good intervals of a day. Files that
/// are there are replaced.
pub(crate) fn save(
    directory: &Path,
    report: &AdviceReport,
    points: &BTreeMap<String, Vec<ModelPoint>>,
) -> Result<(), RecordedError> {
    std::fs::create_dir_all(directory).map_err(|source| RecordedError::Io {
        doing: "create",
        path: directory.to_owned(),
        source,
    })?;
    let mut file = PoolFile::default();
    for pool in &report.pools {
        for datastore in &pool.pool.datastores {
            let name = format!("{}.csv", datastore.name);
            let known = points.get(datastore.name.as_str()).map_or(&[][..], Vec::as_slice);
            points::write(&directory.join(&name), known)?;
            let known = report.models.get(datastore.name.as_str());
            let of_day = known.is_none_or(|known| {
                let older = matches!(known.source, Some(ModelSource::Month | ModelSource::Earlier));
                !older && known.model.is_none_or(|model| model.doubts.is_empty())
            });
            // The points of a day do not make a model that is of other ones.
            let source = match datastore.model {
                Some(model) if !of_day => file::Known::Model(model),
                _ => file::Known::Points(name),
            };
            file.datastores.push(file::DatastoreEntry::of(datastore, source));
        }
        file.disks.extend(pool.pool.disks.iter().map(file::DiskEntry::of));
        let rules = &pool.pool.rules;
        let before = std::mem::take(&mut file.rules);
        file.rules = rules.clone();
        file.rules.affinity.splice(0..0, before.affinity);
        file.rules.anti_affinity.splice(0..0, before.anti_affinity);
    }
    file.write(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_placement::{DeviceInterval, Evidence};

    fn pool(
        text: &str,
        others: &[(&str, String)],
    ) -> (tempfile::TempDir, Result<AdviceReport, RecordedError>) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(super::error::POOL), text).unwrap();
        others.iter().for_each(|(name, text)| std::fs::write(dir.path().join(name), text).unwrap());
        let report = advise(dir.path());
        (dir, report)
    }

    fn error(text: &str) -> String {
        pool(text, &[]).1.unwrap_err().to_string()
    }

    /// Latency rises by so many microseconds for each read.
    fn points(slope: u64) -> String {
        let mut text = String::from("at_ns,outstanding,latency_ns,size,random\n");
        (0..40).for_each(|n| {
            let outstanding = n % 10 + 1;
            let latency = 3_000_000 + 1_000 * slope * outstanding;
            text.push_str(&format!("{n},{outstanding},{latency},8192,1\n"));
        });
        text
    }

    const TWO: &str = r#"
        [[datastore]]
        name = "slow"
        capacity = "1T"
        points = "slow.csv"
        [[datastore]]
        name = "fast"
        capacity = "1T"
        points = "fast.csv"
    "#;

    fn two(disks: usize) -> String {
        let mut text = TWO.to_owned();
        (0..disks).for_each(|n| {
            text.push_str(&format!(
                "[[disk]]\nname = \"d{n}\"\ndatastore = \"slow\"\nsize = \"10G\"\n\
                 workload = {{ outstanding = 16, size = \"8K\", read = 0.7, random = 1.0 }}\n"
            ));
        });
        text
    }

    fn csvs() -> [(&'static str, String); 2] {
        [("slow.csv", points(2_000)), ("fast.csv", points(500))]
    }

    #[test]
    fn recorded_points_are_learnt_from_and_advice_is_given() {
        let (_dir, report) = pool(&two(6), &csvs());
        let report = report.unwrap();
        let advice = &report.pools[0].advice;
        assert!((3..=5).contains(&advice.moves.len()), "{advice:?}");
        assert!(advice.moves.iter().all(|step| step.to.as_str() == "fast"));
        assert!((report.models["slow"].ability.unwrap() - 0.5).abs() < 0.01, "{:?}", report.models);
        assert_eq!(report.pools[0].pool.datastores[1].model.unwrap().evidence, Evidence::Rise);
    }

    #[test]
    fn what_is_saved_gives_the_same_advice() {
        let (_dir, report) = pool(&two(6), &csvs());
        let report = report.unwrap();
        let known: BTreeMap<String, Vec<ModelPoint>> = csvs()
            .iter()
            .map(|(name, text)| {
                let dir = tempfile::tempdir().unwrap();
                std::fs::write(dir.path().join(name), text).unwrap();
                let points = points::read(&dir.path().join(name)).unwrap();
                let of = |point| ModelPoint::new(Nanos(1), &DeviceInterval::Point(point));
                (
                    name.trim_end_matches(".csv").to_owned(),
                    points.into_iter().filter_map(of).collect(),
                )
            })
            .collect();
        let saved = tempfile::tempdir().unwrap();
        save(saved.path(), &report, &known).unwrap();
        let again = advise(saved.path()).unwrap();
        assert_eq!(again.pools[0].advice, report.pools[0].advice);
        assert_eq!(again.models, report.models);
    }

    #[test]
    fn a_model_that_is_not_of_the_points_of_a_day_is_saved_itself() {
        let (_dir, report) = pool(&two(6), &csvs());
        let mut report = report.unwrap();
        let slow = report.models.get_mut("slow").unwrap();
        slow.source = Some(ModelSource::Month);
        let saved = tempfile::tempdir().unwrap();
        // What points there are would say nothing.
        save(saved.path(), &report, &BTreeMap::from([("fast".to_owned(), Vec::new())])).unwrap();
        let again = advise(saved.path()).unwrap();
        let model =
            |report: &AdviceReport, index: usize| report.pools[0].pool.datastores[index].model;
        assert_eq!(model(&again, 0), model(&report, 0));
        assert_eq!(model(&again, 1), None);
    }

    #[test]
    fn traces_are_replayed_on_a_device() {
        let mut trace = String::from("at_ns,disk,op,offset,bytes,latency_ns\n");
        // 400 random reads a second for a minute: four spindles are rather busy with them.
        for n in 0..24_000_u64 {
            let offset = n * 7_919 % 100_000 * 65_536;
            trace.push_str(&format!("{},a,R,{offset},8192,\n", n * 2_500_000));
        }
        let text = r#"
            [[datastore]]
            name = "array"
            capacity = "1T"
            device = "array=4"
            [[disk]]
            name = "db"
            datastore = "array"
            size = "10G"
            trace = "db.csv#a"
        "#;
        let (_dir, report) = pool(text, &[("db.csv", trace)]);
        let report = report.unwrap();
        let disk = &report.pools[0].pool.disks[0];
        let profile = disk.workload.unwrap();
        assert!((1.0..20.0).contains(&profile.outstanding.as_f64()), "{profile:?}");
        assert_eq!((profile.read.0, profile.random.0 > 950), (1_000, true), "{profile:?}");
        assert!(report.models["array"].intervals >= 10, "{:?}", report.models);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let said = error("[[datastore]]\nname = \"a\"\n");
        assert!(said.contains("pool.toml") && said.contains("capacity"), "{said}");
        let said = error("[[datastore]]\nname = \"a\"\ncapacity = \"1 elephant\"\n");
        assert!(said.contains("line 3") && said.contains("elephant"), "{said}");
        let said = error(
            "[[datastore]]\nname = \"a\"\ncapacity = 1\npoints = \"p.csv\"\ndevice = \"null\"\n",
        );
        assert!(
            said.contains("datastore 'a'") && said.contains("one of points, device and model"),
            "{said}"
        );
        let said = error("[[datastore]]\nname = \"a\"\ncapacity = 1\npoints = \"p.csv\"\n");
        assert!(said.contains("cannot read") && said.contains("p.csv"), "{said}");
        let text = "[[datastore]]\nname = \"a\"\ncapacity = 1\npoints = \"p.csv\"\n";
        let broken = format!("{}1,x,3,4,5\n", points(1));
        let said = pool(text, &[("p.csv", broken)]).1.unwrap_err().to_string();
        assert!(said.contains("p.csv, line 42") && said.contains("'x'"), "{said}");
        let said = error("[[disk]]\nname = \"d\"\ndatastore = \"gone\"\nsize = 4096\n");
        assert!(said.contains("disk 'd'") && said.contains("'gone'"), "{said}");
    }
}
