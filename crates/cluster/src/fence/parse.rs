//! What a device says of its persistent reservation.

/// The type of a reservation, as Linux numbers it (`linux/pr.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind(pub u32);

impl Kind {
    /// Write Exclusive, Registrants Only: who is registered may write, all may read.
    pub const WRITE_EXCLUSIVE_REGISTRANTS: Kind = Kind(3);

    /// From the code of SCSI (SPC-4, table 74). An unknown one is no kind of ours.
    fn of_scsi(code: u8) -> Kind {
        Kind(match code {
            1 => 1,
            3 => 2,
            5 => 3,
            6 => 4,
            7 => 5,
            8 => 6,
            _ => 0,
        })
    }

    /// What standards call it.
    pub fn as_str(self) -> &'static str {
        match self.0 {
            1 => "Write Exclusive",
            2 => "Exclusive Access",
            3 => "Write Exclusive, Registrants Only",
            4 => "Exclusive Access, Registrants Only",
            5 => "Write Exclusive, All Registrants",
            6 => "Exclusive Access, All Registrants",
            _ => "an unknown type",
        }
    }
}

/// A reservation that somebody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reservation {
    /// The holder's key; 0 where all registrants hold it.
    pub key: u64,
    /// Its type.
    pub kind: Kind,
}

/// Who is registered with a device, and who has it reserved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Registrants {
    /// The registered keys, one for each path of each host.
    pub keys: Vec<u64>,
    /// The reservation.
    pub reservation: Option<Reservation>,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The keys of an answer to PERSISTENT RESERVE IN, READ KEYS (SPC-4, 6.15.2). `None`: it makes no
/// sense, or is longer than what was read of it.
pub(super) fn scsi_keys(answer: &[u8]) -> Option<Vec<u64>> {
    let length = usize::try_from(word(answer, 4)?).ok()?;
    if !length.is_multiple_of(8) {
        return None;
    }
    (0..length / 8).map(|index| long(answer, 8 + 8 * index)).collect()
}

/// The answer to PERSISTENT RESERVE IN, READ RESERVATION (SPC-4, 6.15.3). `None`: it makes no
/// sense.
pub(super) fn scsi_reservation(answer: &[u8]) -> Option<Option<Reservation>> {
    match word(answer, 4)? {
        0 => Some(None),
        16 => {
            let kind = Kind::of_scsi(answer.get(21)? & 0x0f);
            Some(Some(Reservation { key: long(answer, 8)?, kind }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_the_standard_has_them() {
        let mut answer = vec![0, 0, 0, 9, 0, 0, 0, 16];
        answer.extend(0x4847_0000_0000_0001_u64.to_be_bytes());
        answer.extend(5_u64.to_be_bytes());
        assert_eq!(scsi_keys(&answer), Some(vec![0x4847_0000_0000_0001, 5]));
        // Room that was left over says nothing.
        answer.extend([0xff; 40]);
        assert_eq!(scsi_keys(&answer).map(|keys| keys.len()), Some(2));
        assert_eq!(scsi_keys(&[0; 8]), Some(Vec::new()));
        for wrong in [&[][..], &[0; 7], &[0, 0, 0, 0, 0, 0, 0, 8], &[0, 0, 0, 0, 0, 0, 0, 7, 1, 1]]
        {
            assert_eq!(scsi_keys(wrong), None, "{wrong:?}");
        }
        assert_eq!(scsi_keys(&[0xff; 64]), None, "a length beyond what was read");
    }

    #[test]
    fn a_reservation_is_read_as_the_standard_has_it() {
        let mut answer = vec![0, 0, 0, 9, 0, 0, 0, 16];
        answer.extend(7_u64.to_be_bytes());
        answer.extend([0, 0, 0, 0, 0, 0x05, 0, 0]);
        let kind = Kind::WRITE_EXCLUSIVE_REGISTRANTS;
        assert_eq!(scsi_reservation(&answer), Some(Some(Reservation { key: 7, kind })));
        answer[21] = 0x01;
        let found = scsi_reservation(&answer).flatten().map(|found| found.kind.as_str());
        assert_eq!(found, Some("Write Exclusive"));
        assert_eq!(scsi_reservation(&[0; 8]), Some(None));
        for wrong in [&[][..], &[0; 5], &[0, 0, 0, 0, 0, 0, 0, 16], &[0, 0, 0, 0, 0, 0, 0, 3]] {
            assert_eq!(scsi_reservation(wrong), None, "{wrong:?}");
        }
    }
}
