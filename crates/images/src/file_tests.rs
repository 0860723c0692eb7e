//! Files through both directions: what was written is read again.

use super::*;
use crate::{Backing, Content, Control, ImageSource, Source, copy};
use proptest::prelude::*;
use std::os::unix::fs::{FileExt, MetadataExt};

const MIB: u64 = 1 << 20;

fn bytes_of(source: &dyn Source) -> Vec<u8> {
    let mut bytes = vec![0; source.size().0 as usize];
    source.read(0, &mut bytes).unwrap();
    bytes
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_copy_through_raw_and_qcow2_has_the_same_bytes(
        pieces in proptest::collection::vec((0u64..5 * MIB, 1usize..300_000, 1u8..), 0..6),
        pages in 1u64..1500,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let size = pages * 4096;
        let file = File::create_new(at("first")).unwrap();
        file.set_len(size).unwrap();
        for (offset, len, byte) in pieces {
            let len = len.min((size - offset % size) as usize);
            file.write_all_at(&vec![byte; len], offset % size).unwrap();
        }
        for (from, to, format) in
            [("first", "second", Format::Qcow2), ("second", "third", Format::Raw)]
        {
            let source = ImageSource::open(&at(from), None, Backing::Refused).unwrap();
            let image =
                NewImage::begin(&at(to), format, source.size(), Replace::No).unwrap();
            copy(&source, image.sink(), &Control::default()).unwrap();
            image.finish().unwrap();
        }
        let first = ImageSource::open(&at("first"), None, Backing::Refused).unwrap();
        let third = ImageSource::open(&at("third"), Some(Format::Raw), Backing::Refused).unwrap();
        prop_assert!(bytes_of(&first) == bytes_of(&third));
        prop_assert_eq!(names(directory.path()).len(), 3);
    }
}

#[test]
fn an_image_that_is_not_finished_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new");
    for format in [Format::Raw, Format::Qcow2] {
        let image = NewImage::begin(&path, format, Bytes(MIB), Replace::No).unwrap();
        image.sink().write(0, &[1; 4096]).unwrap();
        assert_eq!(names(directory.path()).len(), 1);
        drop(image);
        assert!(names(directory.path()).is_empty());
    }
}

#[test]
fn what_is_there_is_replaced_only_when_that_is_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("there");
    std::fs::write(&path, "mine").unwrap();
    let begin = |replace| NewImage::begin(&path, Format::Raw, Bytes(4096), replace);
    assert!(matches!(begin(Replace::No), Err(ImageError::Exists(_))));
    // Somebody else is quicker.
    std::fs::remove_file(&path).unwrap();
    let image = begin(Replace::No).unwrap();
    std::fs::write(&path, "theirs").unwrap();
    assert!(matches!(image.finish(), Err(ImageError::Exists(_))));
    assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
    assert_eq!(names(directory.path()), ["there"]);
    begin(Replace::Yes).unwrap().finish().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), [0; 4096]);
    let directory = NewImage::begin(directory.path(), Format::Raw, Bytes(4096), Replace::Yes);
    assert!(matches!(directory, Err(ImageError::Unfit { .. })));
}

#[test]
fn holes_of_a_raw_file_are_zeroes_and_stay_holes() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let file = File::create_new(&from).unwrap();
    file.set_len(64 * MIB).unwrap();
    file.write_all_at(&[7; 4096], 32 * MIB).unwrap();
    let source = ImageSource::open(&from, None, Backing::Refused).unwrap();
    let runs = source.status(0, 64 * MIB).unwrap();
    assert_eq!((runs[0].content, runs[0].len), (Content::Zeroes, 32 * MIB));
    let image = NewImage::begin(&to, Format::Raw, source.size(), Replace::No).unwrap();
    let copied = copy(&source, image.sink(), &Control::default()).unwrap();
    image.finish().unwrap();
    assert!(copied.written <= 64 << 10, "{copied:?}");
    assert!(to.metadata().unwrap().blocks() * 512 <= 128 << 10);
}

#[test]
fn what_is_no_image_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let refused = |bytes: &[u8], format| {
        std::fs::write(&path, bytes).unwrap();
        let error = ImageSource::open(&path, format, Backing::Allowed).err();
        error.map(|e| e.to_string()).unwrap_or_default()
    };
    assert!(refused(b"", None).ends_with("it is empty"));
    assert!(refused(b"KDMV....", None).ends_with("it looks like VMDK, which is not read here"));
    assert_eq!(refused(b"KDMV....", Some(Format::Raw)), "");
    assert!(refused(b"QFI\xfb\0\0\0\x03", None).ends_with("it is truncated within its header"));
    assert!(refused(&[0; 512], Some(Format::Qcow2)).ends_with("it is no qcow2 image"));
    let directory = ImageSource::open(directory.path(), None, Backing::Refused).err().unwrap();
    assert!(matches!(directory, ImageError::Unfit { .. }), "{directory}");
}

/// The header of version 3 with some of its fields, and zeroes behind it.
fn header(cluster_bits: u32, size: u64, crypt: u32, l1_entries: u32, l1: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4 << 16];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, b"QFI\xfb\0\0\0\x03");
    put(20, &cluster_bits.to_be_bytes());
    put(24, &size.to_be_bytes());
    put(32, &crypt.to_be_bytes());
    put(36, &l1_entries.to_be_bytes());
    put(40, &l1.to_be_bytes());
    put(48, &(1_u64 << 16).to_be_bytes());
    put(56, &1_u32.to_be_bytes());
    put(96, &4_u32.to_be_bytes());
    put(100, &104_u32.to_be_bytes());
    bytes
}

#[test]
fn hostile_headers_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let error = ImageSource::open(&path, None, Backing::Allowed).err();
        error.map(|e| e.to_string()).unwrap_or_default()
    };
    let table = 3 << 16;
    assert_eq!(refused(&header(16, MIB, 0, 1, table)), "");
    for (bytes, why) in [
        (header(16, MIB, 1, 1, table), "it is encrypted"),
        (header(63, MIB, 0, 1, table), "its clusters have 2^63 bytes"),
        (header(8, MIB, 0, 1, table), "its clusters have 2^8 bytes"),
        (header(16, u64::MAX, 0, 1, table), "bytes does not fit its table of 1"),
        (header(16, MIB, 0, u32::MAX, table), "bytes does not fit its table of 4294967295"),
        (header(16, MIB, 0, 1, 1 << 40), "lies behind its end"),
        (header(16, MIB, 0, 1, !0xffff), "lies behind its end"),
    ] {
        let said = refused(&bytes);
        assert!(said.contains(why), "{said}: {why}");
    }
    let mut elsewhere = header(16, MIB, 0, 1, table);
    elsewhere[table as usize..table as usize + 8].copy_from_slice(&(1_u64 << 40).to_be_bytes());
    assert!(refused(&elsewhere).contains("lies behind its end"));
    let mut features = header(16, MIB, 0, 1, table);
    features[79] = 0x10;
    assert!(refused(&features).contains("incompatible feature"), "{}", refused(&features));
}

proptest! {
    /// No header has the copy panic, hang or take more memory than its chunks.
    #[test]
    fn noise_in_a_qcow2_image_ends_in_an_error_or_a_copy(
        noise in proptest::collection::vec((0usize..(4 << 16), any::<u8>()), 0..40),
        l1: u64, l2: u64,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let mut bytes = header(16, 4 * MIB, 0, 1, 2 << 16);
        bytes[2 << 16..(2 << 16) + 8].copy_from_slice(&(l1 & 0x8000_0000_0003_0000).to_be_bytes());
        bytes[3 << 16..(3 << 16) + 8].copy_from_slice(&l2.to_be_bytes());
        for (at, byte) in noise {
            // The fields behind the header's, and the size, stay small.
            if at > 104 || !(24..36).contains(&at) {
                bytes[at] = byte;
            }
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(source) = ImageSource::open(&path, Some(Format::Qcow2), Backing::Refused) {
            prop_assert!(source.size().0 <= 4 * MIB);
            let _ = copy(&source, &Nowhere(source.size()), &Control::default());
        }
    }
}

/// A target that keeps nothing.
struct Nowhere(Bytes);

impl Sink for Nowhere {
    fn size(&self) -> Bytes {
        self.0
    }

    fn write(&self, _offset: u64, _bytes: &[u8]) -> Result<(), ImageError> {
        Ok(())
    }

    fn zero(&self, _offset: u64, _len: u64) -> Result<(), ImageError> {
        Ok(())
    }

    fn flush(&self) -> Result<(), ImageError> {
        Ok(())
    }
}
