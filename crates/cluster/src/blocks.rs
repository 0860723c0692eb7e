//! Which block of a board a host writes to: no locks, but whoever finds another in its block moves.

use crate::identity::Identity;
use crate::record::{Record, RecordError};

/// A new host picks among so many free blocks, so that hosts which start together seldom pick the
/// same.
const CHOICE: u64 = 16;

/// What stands in a block.
pub(crate) type Block = Result<Record, RecordError>;

/// Whether this host may write to the block that it has been using.
///
/// Not if somebody else's good record stands there: then two hosts picked the block at the same
/// time, the other wrote later, and it stays. Anything else (nothing, garbage, half a record) is
/// written over.
pub(crate) fn is_ours(block: Option<&Block>, own: &Identity) -> bool {
    match block {
        Some(Ok(record)) if !record.is_farewell() => {
            record.host == own.host && record.instance == own.instance
        }
        _ => true,
    }
}

/// The block for a host that has none, or lost the one it had `attempt` times. `None` when all of
/// `most` are taken; `is_abandoned` says whose record may be written over in that case.
///
/// The one that a former life of this host left, else one of the first empty ones, counting those
/// beyond the end of the file.
pub(crate) fn choose(
    blocks: &[Block],
    most: usize,
    own: &Identity,
    attempt: u64,
    is_abandoned: impl Fn(&Record) -> bool,
) -> Option<usize> {
    if attempt == 0
        && let Some(former) =
            blocks.iter().position(|b| b.as_ref().is_ok_and(|r| r.host == own.host))
    {
        return Some(former);
    }
    let is_empty = |at: &usize| {
        !matches!(blocks.get(*at), Some(Ok(_) | Err(RecordError::Torn | RecordError::Foreign)))
    };
    let empty: Vec<usize> = (0..most).filter(is_empty).take(CHOICE as usize).collect();
    if !empty.is_empty() {
        return empty.get((spread(own, attempt) % empty.len() as u64) as usize).copied();
    }
    // Garbage first, then those who have not been heard of for long.
    let garbage = blocks.iter().take(most).position(Result::is_err);
    garbage.or_else(|| blocks.iter().take(most).position(|b| b.as_ref().is_ok_and(&is_abandoned)))
}

/// Different for every instance and attempt.
fn spread(own: &Identity, attempt: u64) -> u64 {
    let mut low = [0; 8];
    low.copy_from_slice(&own.instance.0[8..]);
    (u64::from_le_bytes(low) ^ attempt.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_mul(0xff51_afd7_ed55_8ccd)
        >> 33
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{HostId, HostName, InstanceId};
    use crate::record::tests::record;
    use std::collections::HashSet;

    fn host(host: u8, instance: u8) -> Identity {
        Identity {
            host: HostId([host; 16]),
            instance: InstanceId([instance; 16]),
            epoch: 1,
            name: HostName::new("h").unwrap(),
        }
    }

    #[test]
    fn a_host_returns_to_its_block_and_else_spoils_none() {
        let blocks = [
            Ok(record(1, 1, 1)),
            Err(RecordError::Torn),
            Err(RecordError::Empty),
            Ok(record(2, 1, 1)),
        ];
        assert_eq!(choose(&blocks, 64, &host(2, 9), 0, |_| false), Some(3));
        for instance in 0..200 {
            let chosen = choose(&blocks, 64, &host(9, instance), 0, |_| false).unwrap();
            assert!(chosen == 2 || (4..19).contains(&chosen), "{chosen}");
        }
    }

    #[test]
    fn hosts_that_start_together_mostly_spread_and_who_lost_chooses_otherwise() {
        let chosen: HashSet<_> =
            (0..8).map(|i| choose(&[], 64, &host(i, i), 0, |_| false)).collect();
        assert!(chosen.len() >= 4, "{chosen:?}");
        let tries: HashSet<_> =
            (1..20).map(|a| choose(&[], 64, &host(1, 1), a, |_| false)).collect();
        assert!(tries.len() > 8, "{tries:?}");
    }

    #[test]
    fn a_full_board_gives_up_garbage_and_the_dead_only() {
        let mut blocks: Vec<Block> = (0..4).map(|i| Ok(record(i, 1, 1))).collect();
        assert_eq!(choose(&blocks, 4, &host(9, 9), 0, |_| false), None);
        assert_eq!(choose(&blocks, 4, &host(9, 9), 0, |r| r.host.0[0] == 2), Some(2));
        blocks[3] = Err(RecordError::Foreign);
        assert_eq!(choose(&blocks, 4, &host(9, 9), 0, |r| r.host.0[0] == 2), Some(3));
    }

    #[test]
    fn only_another_living_record_drives_a_host_from_its_block() {
        let own = host(1, 1);
        assert!(is_ours(None, &own));
        assert!(is_ours(Some(&Err(RecordError::Torn)), &own));
        assert!(is_ours(Some(&Ok(record(1, 1, 1))), &own));
        assert!(!is_ours(Some(&Ok(record(1, 2, 1))), &own));
        assert!(!is_ours(Some(&Ok(record(2, 1, 1))), &own));
    }
}
