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

/// How an NVMe device lists its registrants (Base 2.0, figures 313 to 316): by the length of the
/// hosts' identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NvmeFormat {
    /// Of 64 bits.
    Short,
    /// Of 128 bits.
    Extended,
}

impl NvmeFormat {
    /// Bytes of the head, and of each registrant behind it.
    fn entry(self) -> usize {
        match self {
            NvmeFormat::Short => 24,
            NvmeFormat::Extended => 64,
        }
    }

    /// Where in a registrant its key is.
    fn key(self) -> usize {
        match self {
            NvmeFormat::Short => 16,
            NvmeFormat::Extended => 8,
        }
    }

    /// Bytes of an answer with so many registrants.
    pub(super) fn length(self, registrants: usize) -> usize {
        self.entry() * (registrants + 1)
    }
}

/// How many registrants an answer to Reservation Report speaks of, which need not fit into it.
/// `None`: it makes no sense.
pub(super) fn nvme_count(answer: &[u8]) -> Option<usize> {
    Some(usize::from(u16::from_le_bytes(answer.get(5..7)?.try_into().ok()?)))
}

/// An answer to Reservation Report. `None`: it makes no sense, or is longer than what was read of
/// it.
pub(super) fn nvme_registrants(answer: &[u8], format: NvmeFormat) -> Option<Registrants> {
    let kind = Kind(u32::from(*answer.get(4)?));
    let (mut keys, mut holder) = (Vec::new(), None);
    for index in 0..nvme_count(answer)? {
        let entry = answer.get(format.length(index)..format.length(index + 1))?;
        let key = entry.get(format.key()..)?.get(..8)?;
        let key = u64::from_le_bytes(key.try_into().ok()?);
        keys.push(key);
        if entry.get(2)? & 1 == 1 {
            holder.get_or_insert(key);
        }
    }
    let reservation = match (kind, holder) {
        (Kind(0), None) => None,
        (kind, Some(key)) if kind != Kind(0) => Some(Reservation { key, kind }),
        _ => return None,
    };
    Some(Registrants { keys, reservation })
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

    /// A report: generation 9, this type, and registrants of a controller each, of which some hold
    /// the reservation.
    fn report(format: NvmeFormat, kind: u8, registrants: &[(u64, bool)]) -> Vec<u8> {
        let count = u16::try_from(registrants.len()).unwrap().to_le_bytes();
        let mut answer = vec![9, 0, 0, 0, kind, count[0], count[1]];
        answer.resize(format.length(0), 0);
        for (key, holds) in registrants {
            answer.extend([0xff, 0xff, u8::from(*holds), 0, 0, 0, 0, 0]);
            let host = [0xee; 16];
            match format {
                NvmeFormat::Short => {
                    answer.extend(&host[..8]);
                    answer.extend(key.to_le_bytes());
                }
                NvmeFormat::Extended => {
                    answer.extend(key.to_le_bytes());
                    answer.extend(host);
                    answer.extend([0; 32]);
                }
            }
        }
        answer
    }

    #[test]
    fn a_report_of_nvme_is_read_as_the_standard_has_it() {
        let kind = Kind::WRITE_EXCLUSIVE_REGISTRANTS;
        for format in [NvmeFormat::Short, NvmeFormat::Extended] {
            let mut answer = report(format, 3, &[(5, false), (7, true)]);
            let seen =
                Registrants { keys: vec![5, 7], reservation: Some(Reservation { key: 7, kind }) };
            assert_eq!(nvme_registrants(&answer, format), Some(seen.clone()));
            answer.extend([0xff; 100]);
            assert_eq!(nvme_registrants(&answer, format), Some(seen), "room that was left over");
            let free = nvme_registrants(&report(format, 0, &[(5, false)]), format);
            assert_eq!(free, Some(Registrants { keys: vec![5], reservation: None }));
            let nobody = nvme_registrants(&report(format, 0, &[]), format);
            assert_eq!(nobody, Some(Registrants::default()));
            // A type that nobody holds, a holder of nothing, and an answer that is cut.
            let cut = report(format, 3, &[(5, true)]);
            for wrong in [
                report(format, 3, &[(5, false)]),
                report(format, 0, &[(5, true)]),
                cut[..cut.len() - 1].to_vec(),
                Vec::new(),
            ] {
                assert_eq!(nvme_registrants(&wrong, format), None, "{wrong:?}");
            }
        }
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
