//! What was measured of datastores while one disk alone was busy on them.

use super::row::{DAY, SECOND, decode, encode, seconds};
use super::{SamplesError, SamplesFile};
use headgate_model::Name;
use headgate_placement::Measurement;
use headgate_units::Nanos;
use rusqlite::{Transaction, params};

/// How long measurements are kept.
pub(crate) const KEPT: Nanos = Nanos::from_secs(7 * DAY);

impl SamplesFile {
    /// What was measured of a datastore in intervals that ended since an instant, in the order of
    /// time.
    pub fn measured(
        &mut self,
        datastore: &Name,
        from: Nanos,
    ) -> Result<Vec<Measurement>, SamplesError> {
        self.read(|tx| {
            let mut rows = tx.prepare_cached(
                "SELECT measured FROM measurements WHERE datastore = ?1 AND at >= ?2 ORDER BY at",
            )?;
            let mut rows = rows.query(params![datastore.as_str(), seconds(from)])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let blob: Vec<u8> = row.get(0)?;
                let Some(measured) = decode::<Vec<(Nanos, Measurement)>>(&blob) else { continue };
                let within = measured.into_iter().filter(|(at, _)| *at >= from);
                found.extend(within.map(|(_, measured)| measured));
            }
            Ok(found)
        })
    }
}

pub(super) fn add_measured(
    tx: &Transaction<'_>,
    datastore: &Name,
    at: i64,
    measured: &Vec<(Nanos, Measurement)>,
) -> Result<(), rusqlite::Error> {
    tx.prepare_cached("INSERT OR REPLACE INTO measurements VALUES (?1, ?2, ?3)")?
        .execute(params![datastore.as_str(), at, encode(measured)])?;
    Ok(())
}

pub(super) fn forget_old_measured(tx: &Transaction<'_>, at: i64) -> Result<(), rusqlite::Error> {
    let kept = (KEPT.0 / SECOND).cast_signed();
    tx.execute("DELETE FROM measurements WHERE at < ?1", [at - kept])?;
    Ok(())
}
