//! Accounts of disks. They stay when a disk is removed: it was promised what it was.

use super::row::{DAY, decode, encode};
use super::{SamplesError, SamplesFile};
use crate::Span;
use crate::account::{Account, Minutes};
use headgate_model::Name;
use rusqlite::{OptionalExtension, Transaction, params};
use std::collections::BTreeMap;
use std::ops::Range;

/// How long hours are kept: two whole months, to report on the last one.
const TWO_MONTHS: u64 = 62 * DAY;

impl SamplesFile {
    /// The accounts of all disks, or of one, that begin within these seconds.
    pub fn accounts(
        &mut self,
        disk: Option<&Name>,
        within: &Range<i64>,
        span: Span,
    ) -> Result<BTreeMap<Name, BTreeMap<i64, Account>>, SamplesError> {
        self.read(|tx| {
            let mut rows = tx.prepare_cached(
                "SELECT disk, at, account FROM accounts \
                 WHERE span = ?1 AND at >= ?2 AND at < ?3 AND (?4 IS NULL OR disk = ?4)",
            )?;
            let disk = disk.map(Name::as_str);
            let mut rows = rows.query(params![span.seconds(), within.start, within.end, disk])?;
            let mut found: BTreeMap<Name, BTreeMap<i64, Account>> = BTreeMap::new();
            while let Some(row) = rows.next()? {
                let (name, at, blob): (String, i64, Vec<u8>) =
                    (row.get(0)?, row.get(1)?, row.get(2)?);
                let (Ok(name), Some(account)) = (name.parse::<Name>(), decode(&blob)) else {
                    continue;
                };
                found.entry(name).or_default().insert(at, account);
            }
            Ok(found)
        })
    }
}

/// Adds a disk's minutes to what is there of them, and of their hours.
pub(super) fn add_accounts(
    tx: &Transaction<'_>,
    disk: &Name,
    minutes: &Minutes,
) -> Result<(), rusqlite::Error> {
    let mut hours: BTreeMap<i64, Account> = BTreeMap::new();
    for (&minute, account) in minutes {
        add_account(tx, disk, Span::Minute, minute, account)?;
        hours.entry(Span::Hour.begin(minute)).or_default().merge(account);
    }
    hours.iter().try_for_each(|(&hour, account)| add_account(tx, disk, Span::Hour, hour, account))
}

fn add_account(
    tx: &Transaction<'_>,
    disk: &Name,
    span: Span,
    at: i64,
    more: &Account,
) -> Result<(), rusqlite::Error> {
    let before: Option<Vec<u8>> = tx
        .prepare_cached("SELECT account FROM accounts WHERE disk = ?1 AND span = ?2 AND at = ?3")?
        .query_row(params![disk.as_str(), span.seconds(), at], |row| row.get(0))
        .optional()?;
    let mut account: Account = before.and_then(|blob| decode(&blob)).unwrap_or_default();
    account.merge(more);
    tx.prepare_cached("INSERT OR REPLACE INTO accounts VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![disk.as_str(), span.seconds(), at, encode(&account)])?;
    Ok(())
}

pub(super) fn forget_old_accounts(tx: &Transaction<'_>, now: i64) -> Result<(), rusqlite::Error> {
    for (span, kept) in [(Span::Minute, DAY), (Span::Hour, TWO_MONTHS)] {
        tx.execute(
            "DELETE FROM accounts WHERE span = ?1 AND at < ?2",
            params![span.seconds(), now - kept.cast_signed()],
        )?;
    }
    Ok(())
}
