//! Removed disks, moves, and disks that continue others.

use super::SamplesFile;
use super::departed::Departed;
use super::error::SamplesError;
use super::row::{DAY, SECOND, seconds};
use headgate_model::Name;
use headgate_placement::PastMove;
use headgate_units::Nanos;
use rusqlite::{Transaction, params};

/// How long a removed disk's samples are there for another that continues it.
const KEPT_DEPARTED: Nanos = Nanos::from_secs(7 * DAY);
/// How long moves are kept: longer than any rule needs them.
const KEPT_MOVES: u64 = 366 * DAY;

impl SamplesFile {
    /// Hands the samples and moves of a removed disk to the disk that continues it, or copies those
    /// of a disk that still exists. `origin` is the old one's datastore if it differs from the new
    /// one's.
    pub fn inherit(
        &mut self,
        disk: &Name,
        from: &str,
        origin: Option<&Name>,
        now: Nanos,
    ) -> Result<(), SamplesError> {
        self.change(|tx| {
            for (table, columns) in
                [("disk_intervals", "at, intervals"), ("disk_hours", "hour, meter"), ("moves", "at, origin")]
            {
                tx.execute(
                    &format!(
                        "INSERT OR REPLACE INTO {table} SELECT ?1, {columns} FROM {table} WHERE disk = ?2"
                    ),
                    [disk.as_str(), from],
                )?;
            }
            if let Some(origin) = origin {
                tx.execute(
                    "INSERT OR REPLACE INTO moves VALUES (?1, ?2, ?3)",
                    params![disk.as_str(), seconds(now), origin.as_str()],
                )?;
            }
            if let Some(gone) = from.strip_prefix('~') {
                forget_departed(tx, gone)?;
            }
            Ok(())
        })
    }

    /// Moves of disks that are there.
    pub fn moves(&mut self) -> Result<Vec<PastMove>, SamplesError> {
        self.read(|tx| {
            let mut rows = tx.prepare(
                "SELECT disk, at, origin FROM moves WHERE disk NOT LIKE '~%' ORDER BY at",
            )?;
            let moves = rows.query_map([], |row| {
                let (disk, at, origin): (String, i64, String) =
                    (row.get(0)?, row.get(1)?, row.get(2)?);
                let at = Nanos(u64::try_from(at).unwrap_or(0).saturating_mul(SECOND));
                Ok(PastMove { disk: disk.into(), from: origin.into(), at })
            })?;
            moves.collect()
        })
    }

    /// Removed disks whose samples are still kept.
    pub fn departed(&mut self) -> Result<Vec<Departed>, SamplesError> {
        self.read(|tx| {
            let mut rows = tx.prepare("SELECT disk, datastore FROM departed")?;
            let found: Vec<(String, String)> = rows
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<Result<_, _>>()?;
            let departed = found.iter().filter_map(|(disk, datastore)| {
                Some(Departed { disk: disk.parse().ok()?, datastore: datastore.parse().ok()? })
            });
            Ok(departed.collect())
        })
    }
}

fn forget_departed(tx: &Transaction<'_>, disk: &str) -> Result<(), rusqlite::Error> {
    let aside = format!("~{disk}");
    for table in ["disk_intervals", "disk_hours", "moves"] {
        tx.execute(&format!("DELETE FROM {table} WHERE disk = ?1"), [&aside])?;
    }
    tx.execute("DELETE FROM departed WHERE disk = ?1", [disk])?;
    Ok(())
}

/// Deletes removed disks that no disk continued in time, and moves that no rule needs any more.
pub(super) fn forget_old_moves(tx: &Transaction<'_>, at: i64) -> Result<(), rusqlite::Error> {
    let oldest = at - seconds(KEPT_DEPARTED);
    let mut rows = tx.prepare_cached("SELECT disk FROM departed WHERE at < ?1")?;
    let old: Vec<String> = rows.query_map([oldest], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for disk in old {
        forget_departed(tx, &disk)?;
    }
    tx.execute("DELETE FROM moves WHERE at < ?1", [at - KEPT_MOVES as i64])?;
    Ok(())
}
