//! Labels: what they say comes back, and nothing that was changed on the way does.

use headgate_stripe::*;
use headgate_units::Bytes;
use proptest::prelude::*;

/// A bit at a time, from the definition in RFC 3720: an oracle that shares no table with the crate.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = sum & 1;
            sum >>= 1;
            sum ^= carry * 0x82F6_3B78;
        }
    }
    !sum
}

/// Gives bytes the checksum that fits.
fn seal(bytes: &mut [u8; LABEL_LEN]) {
    let sum = crc32c(&bytes[..LABEL_LEN - 4]);
    bytes[LABEL_LEN - 4..].copy_from_slice(&sum.to_be_bytes());
}

fn layout() -> Layout {
    Layout::new(Bytes::from_kib(64), 3, Bytes::from_gib(10)).unwrap()
}

fn label() -> Label {
    let id = "000102030405060708090a0b0c0d0e0f".parse().unwrap();
    Label { id, index: 2, layout: layout(), lease: lease(), stage: Stage::Made }
}

fn lease() -> Lease {
    Lease { number: 0x0102, host: [0xC3; 16], name: HostName::new("gw-ä") }
}

/// The format as its table has it, written by hand. What is written today is read for ever.
fn by_hand() -> [u8; LABEL_LEN] {
    let mut bytes = [0; LABEL_LEN];
    bytes[..16].copy_from_slice(b"HEADGATE STRIPE\n");
    bytes[19] = 2;
    bytes[20..36].copy_from_slice(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    bytes[37] = 2;
    bytes[39] = 3;
    bytes[40..48].copy_from_slice(&[0, 0, 0, 0, 0, 1, 0, 0]);
    bytes[48..56].copy_from_slice(&[0, 0, 0, 2, 0x80, 0, 0, 0]);
    bytes[62..64].copy_from_slice(&[1, 2]);
    bytes[64..80].fill(0xC3);
    bytes[80..85].copy_from_slice(&[b'g', b'w', b'-', 0xC3, 0xA4]);
    seal(&mut bytes);
    bytes
}

/// The same of a disk that is being made.
fn being_made_by_hand() -> [u8; LABEL_LEN] {
    let mut bytes = by_hand();
    (bytes[19], bytes[144]) = (3, 1);
    seal(&mut bytes);
    bytes
}

/// A label with other bytes somewhere and a checksum that fits.
fn with(at: usize, what: &[u8]) -> Result<Label, LabelError> {
    let mut bytes = label().to_bytes();
    bytes[at..at + what.len()].copy_from_slice(what);
    seal(&mut bytes);
    Label::from_bytes(&bytes)
}

#[test]
fn a_label_is_written_as_the_table_says() {
    assert_eq!(label().to_bytes(), by_hand());
    assert_eq!(Label::from_bytes(&by_hand()), Ok(label()));
    assert_eq!(by_hand()[LABEL_LEN - 4..], [0x08, 0x7A, 0x39, 0xD0]);
    let being_made = Label { stage: Stage::BeingMade, ..label() };
    assert_eq!(being_made.to_bytes(), being_made_by_hand());
    assert_eq!(Label::from_bytes(&being_made_by_hand()), Ok(being_made));
}

#[test]
fn every_flip_of_a_bit_is_refused() {
    for bit in 0..LABEL_LEN * 8 {
        let mut bytes = label().to_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let expected = if bit < 16 * 8 { LabelError::None } else { LabelError::Damaged };
        assert_eq!(Label::from_bytes(&bytes), Err(expected), "bit {bit}");
    }
}

#[test]
fn what_is_no_label_is_told_from_what_is_damaged() {
    assert_eq!(Label::from_bytes(&[0; LABEL_LEN]), Err(LabelError::None));
    assert_eq!(Label::from_bytes(&[0xFF; LABEL_LEN]), Err(LabelError::None));
    assert_eq!(with(0, b"HEADGATE STRIPES"), Err(LabelError::None));
    // Only the first sector was written.
    let mut torn = label().to_bytes();
    torn[512..].fill(0);
    assert_eq!(Label::from_bytes(&torn), Err(LabelError::Damaged));
}

#[test]
fn what_cannot_be_is_refused_although_the_checksum_fits() {
    for version in [0, 1, 4, u32::MAX] {
        assert_eq!(with(16, &version.to_be_bytes()), Err(LabelError::Version(version)));
    }
    for at in 144..LABEL_LEN - 4 {
        assert_eq!(with(at, &[1]), Err(LabelError::Damaged), "{at}");
    }
    // A stage is of version 3, and somebody's.
    for (at, what) in [(16, 3_u32.to_be_bytes()), (144, [1, 0, 0, 0])] {
        assert_eq!(with(at, &what), Err(LabelError::Damaged), "{at}");
    }
    for (at, what, error) in [
        (144, &[0][..], LabelError::Damaged),
        (144, &[2], LabelError::Damaged),
        (145, &[1], LabelError::Damaged),
        (64, &[0; 80], LabelError::Lease),
    ] {
        let mut bytes = being_made_by_hand();
        bytes[at..at + what.len()].copy_from_slice(what);
        seal(&mut bytes);
        assert_eq!(Label::from_bytes(&bytes), Err(error), "{at}");
    }
    for (at, value, error) in [
        (40, 0, LayoutError::Unit(Bytes(0))),
        (40, 65_537, LayoutError::Unit(Bytes(65_537))),
        (48, 0, LayoutError::Size(Bytes(0))),
        (48, u64::MAX, LayoutError::Size(Bytes(u64::MAX))),
    ] {
        assert_eq!(with(at, &u64::to_be_bytes(value)), Err(LabelError::Layout(error)));
    }
    for members in [0, 65, u16::MAX] {
        let error = LabelError::Layout(LayoutError::Members(members));
        assert_eq!(with(38, &members.to_be_bytes()), Err(error));
    }
    for index in [3, u16::MAX] {
        let error = LabelError::Index { index, members: 3 };
        assert_eq!(with(36, &index.to_be_bytes()), Err(error));
        assert_eq!(Label::from_bytes(&Label { index, ..label() }.to_bytes()), Err(error));
    }
}

#[test]
fn a_check_says_what_differs_first() {
    let expected = label();
    assert_eq!(expected.check(&expected), Ok(()));

    let place = Label { index: 0, ..expected };
    assert_eq!(place.check(&expected), Err(Mismatch::Place { found: 0, expected: 2 }));
    assert_eq!(expected.check(&place), Err(Mismatch::Place { found: 2, expected: 0 }));

    let larger = Bytes(Bytes::from_gib(10).0 + 4096);
    for other in [
        Layout::new(Bytes::from_kib(32), 3, layout().size()).unwrap(),
        Layout::new(layout().unit(), 4, layout().size()).unwrap(),
        Layout::new(layout().unit(), 3, larger).unwrap(),
    ] {
        let found = Label { layout: other, ..place };
        let mismatch = Mismatch::Layout { found: other, expected: layout() };
        assert_eq!(found.check(&expected), Err(mismatch));
        // An operator sees the difference.
        assert_ne!(other.to_string(), layout().to_string());

        let found = Label { id: StripeId([9; 16]), ..found };
        let mismatch = Mismatch::Disk { found: found.id, expected: expected.id };
        assert_eq!(found.check(&expected), Err(mismatch));
    }
}

#[test]
fn who_may_serve_the_disk_is_the_last_that_is_compared_and_its_name_is_not() {
    let expected = label();
    let renamed = Lease { name: HostName::new("other"), ..lease() };
    assert_eq!(Label { lease: renamed, ..expected }.check(&expected), Ok(()));
    for other in [
        Lease { number: 0x0103, ..lease() },
        Lease { number: 0x0101, ..lease() },
        Lease { host: [0xC4; 16], ..lease() },
        lease().given_back(),
        Lease::NONE,
    ] {
        let found = Label { lease: other, ..expected };
        let mismatch = Mismatch::Lease { found: other, expected: 0x0102 };
        assert_eq!(found.check(&expected), Err(mismatch));
        let place = Label { index: 0, ..found };
        assert_eq!(place.check(&expected), Err(Mismatch::Place { found: 0, expected: 2 }));
        assert_eq!(Label::from_bytes(&found.to_bytes()), Ok(found));
    }
    assert_eq!((lease().is_held(), lease().given_back().is_held()), (true, false));
    assert_eq!(lease().given_back().number, 0x0102);
}

#[test]
fn a_lease_that_cannot_be_is_refused() {
    let refused = |at: usize, what: &[u8]| assert_eq!(with(at, what), Err(LabelError::Lease));
    // A host with the number of nobody, and nobody with a name.
    refused(56, &[0; 8]);
    refused(64, &[0; 16]);
    // No UTF-8, something behind the name's end, and a character that moves a terminal's cursor.
    refused(83, &[0xFF]);
    refused(86, b"x");
    refused(80, b"\n");
    assert!(with(85, &[b'x'; 59]).is_ok_and(|label| label.lease.name.as_str().len() == 64));
}

#[test]
fn a_name_is_cut_between_its_characters() {
    let long = "ä".repeat(40);
    assert_eq!(HostName::new(&long).as_str(), "ä".repeat(32));
    assert_eq!(HostName::new(&format!("x{long}")).as_str(), format!("x{}", "ä".repeat(31)));
    assert_eq!(HostName::new("a\u{1b}[2Jb\0c").as_str(), "a[2Jbc");
}

#[test]
fn messages_say_what_was_found_and_what_was_expected() {
    let said = |found: Label| found.check(&label()).unwrap_err().to_string();
    let other = Layout::new(Bytes::from_kib(4), 1, Bytes(4096)).unwrap();
    for (message, parts) in [
        (said(Label { index: 1, ..label() }), ["member 1 ", "member 2 ", "order"]),
        (
            said(Label { layout: other, ..label() }),
            ["units of 4 KiB on 1 member, 4096 bytes", "units of 64 KiB on 3 members", "give "],
        ),
        (said(Label { id: StripeId([0xAB; 16]), ..label() }), ["abababab", "00010203", "address"]),
        (
            said(Label { lease: Lease { number: 9, ..lease() }, ..label() }),
            ["host 'gw-ä' (lease 9)", "lease 258", "expected"],
        ),
        (
            said(Label { stage: Stage::BeingMade, ..label() }),
            ["begun and not finished", "create it again", "same exports"],
        ),
        (LabelError::Version(7).to_string(), ["version 7", "versions 2 and 3", "newer"]),
        (
            LabelError::Layout(LayoutError::Unit(Bytes(5000))).to_string(),
            ["5000 bytes", "4 KiB", "64 MiB"],
        ),
    ] {
        parts.iter().for_each(|part| assert!(message.contains(part), "'{part}' in '{message}'"));
    }
}

fn any_layout() -> impl Strategy<Value = Layout> {
    let largest = SIZE_MAX.0 / SIZE_STEP.0;
    (12..=26u32, 1..=MEMBERS_MAX, 1..=largest).prop_map(|(unit, members, steps)| {
        Layout::new(Bytes(1 << unit), members, Bytes(steps * SIZE_STEP.0)).unwrap()
    })
}

fn any_label() -> impl Strategy<Value = Label> {
    let parts = (any::<[u8; 16]>(), any_layout(), any::<u16>(), any_lease(), any::<bool>());
    parts.prop_map(|(id, layout, index, lease, is_made)| Label {
        id: StripeId(id),
        index: index % layout.members(),
        layout,
        lease,
        stage: if is_made || !lease.is_held() { Stage::Made } else { Stage::BeingMade },
    })
}

/// Of a host or of nobody.
fn any_lease() -> impl Strategy<Value = Lease> {
    (1..=u64::MAX, any::<Option<[u8; 16]>>(), "[^\\p{Cc}]{0,20}").prop_map(
        |(number, host, name)| match host.filter(|host| *host != [0; 16]) {
            Some(host) => Lease { number, host, name: HostName::new(&name) },
            None => Lease { number: number - 1, ..Lease::NONE },
        },
    )
}

proptest! {
    #[test]
    fn labels_come_back(label in any_label()) {
        prop_assert_eq!(Label::from_bytes(&label.to_bytes()), Ok(label));
        prop_assert_eq!(label.id.to_string().parse(), Ok(label.id));
    }

    /// What is accepted is what is written: there is one text for one label.
    #[test]
    fn bytes_that_are_accepted_are_the_label_s(
        label in any_label(),
        changes in prop::collection::vec((0..LABEL_LEN, any::<u8>()), 0..4),
        early in prop::collection::vec((16..144usize, any::<u8>()), 0..4),
        sealed in any::<bool>(),
    ) {
        let mut bytes = label.to_bytes();
        changes.iter().chain(&early).for_each(|(at, value)| bytes[*at] = *value);
        if sealed {
            seal(&mut bytes);
        }
        if let Ok(found) = Label::from_bytes(&bytes) {
            prop_assert_eq!(found.to_bytes(), bytes);
            prop_assert!(found.index < found.layout.members());
            prop_assert!(sealed || found == label);
        }
    }

    #[test]
    fn bytes_of_any_kind_are_refused_in_words(bytes in any::<[u8; 256]>(), magic in any::<bool>()) {
        let mut label = [0; LABEL_LEN];
        label.chunks_mut(256).for_each(|chunk| chunk.copy_from_slice(&bytes));
        if magic {
            label[..16].copy_from_slice(b"HEADGATE STRIPE\n");
        }
        prop_assert!(Label::from_bytes(&label).is_err_and(|error| error.to_string().len() > 20));
    }
}
