//! A catalog with values that no version of Headgate wrote, or with bytes of its file replaced: an
//! error or a state, never a panic; and what is read can be written and is read back the same.

use arbitrary::{Result, Unstructured};
use headgate_catalog::{Catalog, Contents, SqliteCatalog};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// Good rows to start from. Columns that are not named have their default.
const ROWS: &str = r#"
INSERT INTO datastores (name, backend, scheduler, queue_depth, capacity, cost_model, plug,
        window_control, placement, layers) VALUES
    ('array', '{"kind":"emulated","model":"rate=1600,latency=5ms","path":"emulated/array"}',
     'mclock', 32, '{"iops":1500,"source":{"source":"set"}}', 'affine=300K', 0,
     NULL, '{}', '["delay=5ms","error=1%"]'),
    ('remote', '{"kind":"nbd","server":"nbd://server:10809"}', 'fifo', 128, NULL, 'unit', 1000,
     NULL, NULL, '[]'),
    ('files', '{"kind":"dir","path":"/srv/files"}', 'sfq', 64, NULL, 'chunks=16K', 0,
     NULL, '{}', '[]');
INSERT INTO disks (name, datastore, vm, size, state, export, export_block, placement, policy) VALUES
    ('a', 'array', 'vm1', 1073741824, 'ready', NULL, NULL, '{}',
     '{"reservation":100,"limit":500,"shares":100}'),
    ('b', 'remote', NULL, 1048576, 'creating', 'export', 512, NULL, '{}'),
    ('c', 'files', 'vm2', 4096, 'removing', NULL, NULL, '{}', '{"limit_peak":900,"limit":1}');
INSERT INTO vms (name, max_priority, default_priority, priority_scope, nice, ioprio_map) VALUES
    ('vm1', 7, 3, 'within', 'honour', 'be7=7,idle=1');
INSERT INTO exports (name, disk, priority) VALUES ('a-log', 'a', 5);
"#;

const TABLES: [&str; 5] = ["datastores", "disks", "vms", "exports", "rules"];

/// One catalog for all inputs: opening one takes longer than all the rest.
struct Bench {
    catalog: SqliteCatalog,
    fresh: SqliteCatalog,
    raw: Connection,
    raw_fresh: Connection,
    columns: Vec<Vec<String>>,
    good: Vec<u8>,
    damaged: PathBuf,
    _dir: tempfile::TempDir,
}

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
}

impl Bench {
    fn new() -> Bench {
        let dir = super::scratch();
        let open = |name: &str| {
            let path = dir.path().join(name);
            let catalog = SqliteCatalog::open(&path).expect("a new catalog");
            let raw = Connection::open(&path).expect("its file");
            raw.pragma_update(None, "foreign_keys", "OFF").expect("a setting");
            (catalog, raw)
        };
        let (mut catalog, raw) = open("catalog");
        let (fresh, raw_fresh) = open("fresh");
        raw.execute_batch(ROWS).expect("good rows");
        let columns = TABLES.map(|table| columns(&raw, table)).to_vec();
        // Otherwise every input would end here.
        catalog.load().expect("good rows can be read");
        let good = good_file(&dir.path().join("good"));
        let damaged = dir.path().join("damaged");
        Bench { catalog, fresh, raw, raw_fresh, columns, good, damaged, _dir: dir }
    }
}

/// A catalog of the good rows in one file, without a log beside it.
fn good_file(path: &Path) -> Vec<u8> {
    drop(SqliteCatalog::open(path).expect("a new catalog"));
    let raw = Connection::open(path).expect("its file");
    raw.execute_batch(ROWS).expect("good rows");
    let delete = raw.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()));
    delete.expect("a journal of the other kind");
    drop(raw);
    std::fs::read(path).expect("a file")
}

fn columns(raw: &Connection, table: &str) -> Vec<String> {
    let sql = format!("SELECT name FROM pragma_table_info('{table}')");
    let mut statement = raw.prepare(&sql).expect("a table");
    let names = statement.query_map([], |row| row.get(0)).expect("its columns");
    names.collect::<Result<_, _>>().expect("names")
}

fn clear(raw: &Connection) {
    let deletes: String = TABLES.iter().map(|table| format!("DELETE FROM {table};")).collect();
    raw.execute_batch(&deletes).expect("an empty catalog");
}

/// A value in place of `old`: a number, nothing, or the text with a few bytes replaced.
fn value(u: &mut Unstructured<'_>, old: &Value) -> Result<Value> {
    Ok(match u.int_in_range(0..=5)? {
        0 => Value::Null,
        1 => Value::Integer(u.arbitrary()?),
        2 => Value::Integer(u.int_in_range(-2..=300)?),
        _ => {
            let Value::Text(text) = old else { return Ok(Value::Text(u.arbitrary()?)) };
            let mut bytes = text.clone().into_bytes();
            let at = u.int_in_range(0..=bytes.len())?;
            let end = (at + u.int_in_range(0..=8usize)?).min(bytes.len());
            let len = u.int_in_range(0..=8usize)?;
            bytes.splice(at..end, u.bytes(len)?.iter().copied());
            Value::Text(String::from_utf8_lossy(&bytes).into_owned())
        }
    })
}

/// Replaces values of the good rows.
fn spoil(u: &mut Unstructured<'_>, bench: &Bench) -> Result<()> {
    while !u.is_empty() {
        let at = u.choose_index(TABLES.len())?;
        let (table, columns) = (TABLES[at], &bench.columns[at]);
        if table == "rules" {
            let document: String = u.arbitrary()?;
            let sql = "INSERT OR REPLACE INTO rules (id, document) VALUES (1, ?1)";
            // What the schema does not take is not in the catalog.
            let _ = bench.raw.execute(sql, [document]);
            continue;
        }
        let column = &columns[u.choose_index(columns.len())?];
        let row: i64 = u.int_in_range(1..=3)?;
        let sql = format!("SELECT rowid, {column} FROM {table} LIMIT 1 OFFSET ?1");
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let found = bench.raw.query_row(&sql, [row - 1], read);
        let Ok((id, old)): std::result::Result<(i64, Value), _> = found else { continue };
        let new = value(u, &old)?;
        let sql = format!("UPDATE {table} SET {column} = ?1 WHERE rowid = ?2");
        let _ = bench.raw.execute(&sql, params_from_iter([new, Value::Integer(id)]));
    }
    Ok(())
}

/// Writes what was read into an empty catalog. `false`: rows refer to what is not there.
fn write(catalog: &mut SqliteCatalog, contents: &Contents) -> bool {
    let Contents { datastores, disks, vms, exports, rules, .. } = contents;
    catalog.put_rules(rules).expect("rules have no references");
    datastores.iter().all(|record| catalog.insert_datastore(record).is_ok())
        && disks.iter().all(|record| catalog.insert_disk(record).is_ok())
        && vms.iter().all(|record| catalog.put_vm(record).is_ok())
        && exports.iter().all(|record| catalog.insert_export(record).is_ok())
}

fn rows(u: &mut Unstructured<'_>, bench: &mut Bench) {
    clear(&bench.raw);
    bench.raw.execute_batch(ROWS).expect("good rows");
    // Running out of input ends it like any other step.
    let _ = spoil(u, bench);
    let contents = match bench.catalog.load() {
        Ok(contents) => contents,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    clear(&bench.raw_fresh);
    if write(&mut bench.fresh, &contents) {
        let again = bench.fresh.load().expect("what was written can be read");
        assert_eq!(again, contents);
    }
}

/// The file with some of its bytes replaced.
fn damage(u: &mut Unstructured<'_>, bench: &Bench) -> Result<()> {
    let mut bytes = bench.good.clone();
    while !u.is_empty() {
        let at = u.choose_index(bytes.len())?;
        let len = u.int_in_range(1..=8usize)?;
        for (byte, new) in bytes[at..].iter_mut().zip(u.bytes(len)?) {
            *byte = *new;
        }
        if u.ratio(1, 16)? {
            bytes.truncate(at);
            break;
        }
    }
    open_damaged(bench, &bytes);
    Ok(())
}

fn open_damaged(bench: &Bench, bytes: &[u8]) {
    for beside in ["-wal", "-shm", "-journal"] {
        let mut name = bench.damaged.clone().into_os_string();
        name.push(beside);
        // Mostly there is none.
        let _ = std::fs::remove_file(name);
    }
    std::fs::write(&bench.damaged, bytes).expect("there is room");
    if let Ok(mut catalog) = SqliteCatalog::open(&bench.damaged)
        && let Err(error) = catalog.load()
    {
        assert!(!error.to_string().is_empty());
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    // Any bytes lead somewhere.
    (0..32u8)
        .map(|n| (0..64u8).map(|at| at.wrapping_mul(37).wrapping_add(n * 8)).collect())
        .collect()
}

pub(super) fn run(input: &[u8]) {
    let Some((&how, rest)) = input.split_first() else { return };
    BENCH.with_borrow_mut(|bench| {
        let bench = bench.get_or_insert_with(Bench::new);
        let mut u = Unstructured::new(rest);
        if how % 4 == 0 {
            // Running out of input: nothing was damaged.
            let _ = damage(&mut u, bench);
        } else {
            rows(&mut u, bench);
        }
    });
}
