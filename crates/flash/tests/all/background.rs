//! Collection in the background, in steps; striping and copies within planes; what is refused.

use crate::common::{Rng, geometry};
use headgate_flash::{
    Cause, Config, ConfigError, CopyBack, Ftl, FtlError, Ignore, Image, Isolation, Levelling, Op,
    OwnerError, OwnerId, OwnerSpec, PageAddr, Streams, Thresholds, Work, WorkKind,
};
use std::collections::BTreeSet;

const DISK: OwnerId = OwnerId(3);

fn layer(config: Config) -> Ftl<Image> {
    Ftl::format(Image::new(geometry(4, 2, 16, 32)), config).unwrap()
}

fn quiet() -> Config {
    Config {
        thresholds: Thresholds { foreground: 1, background: 6 },
        levelling: Levelling::Off,
        ..Config::default()
    }
}

/// The background keeps more free than one write can use.
fn eager() -> Config {
    Config { thresholds: Thresholds { foreground: 1, background: 6 }, ..quiet() }
}

/// As many free blocks as it takes for each of the 8 planes to have one.
fn roomy() -> Config {
    Config { thresholds: Thresholds { foreground: 12, background: 0 }, ..quiet() }
}

/// A disk of so many percent of the medium, written over at random for a while.
fn aged(config: Config, percent: u32) -> Ftl<Image> {
    let mut ftl = layer(config);
    let pages = ftl.geometry().pages() / 100 * percent;
    ftl.add_owner(DISK, OwnerSpec::pages(pages)).unwrap();
    let mut rng = Rng(5);
    for page in 0..pages {
        ftl.write(DISK, page, &mut Ignore).unwrap();
    }
    for _ in 0..4 * pages {
        ftl.write(DISK, rng.below(pages), &mut Ignore).unwrap();
    }
    ftl
}

#[test]
fn what_is_done_between_writes_need_not_be_done_in_them() {
    let mut ftl = aged(eager(), 70);
    let mut rng = Rng(6);
    let pages = ftl.owners().next().unwrap().spec.pages;
    let mut in_writes = 0;
    for _ in 0..20_000 {
        while ftl.step(&mut Ignore).unwrap().is_some() {}
        let mut ops = Vec::new();
        ftl.write(DISK, rng.below(pages), &mut ops).unwrap();
        in_writes += ops.iter().filter(|op| op.cause() == Cause::Collection).count();
    }
    assert_eq!(in_writes, 0);
    assert!(ftl.free_blocks() >= 5, "{}", ftl.free_blocks());
    ftl.check().unwrap();
}

#[test]
fn a_step_is_one_page_or_one_erase_and_is_announced() {
    let mut ftl = aged(eager(), 70);
    let (mut moves, mut erases) = (0, 0);
    while let Some(announced) = ftl.work() {
        let mut ops = Vec::new();
        assert_eq!(ftl.step(&mut ops).unwrap(), Some(announced));
        match announced.kind {
            WorkKind::Move => {
                moves += 1;
                let moved = matches!(
                    ops[..],
                    [Op::CopyBack { .. }] | [Op::Read { .. }, Op::Program { .. }]
                );
                assert!(moved, "{ops:?}");
            }
            WorkKind::Erase => {
                erases += 1;
                assert!(matches!(ops[..], [Op::Erase { cause: Cause::Collection, .. }]), "{ops:?}");
            }
        }
        ftl.check().unwrap();
    }
    assert!(moves > 0 && erases > 0, "{moves} {erases}");
    assert_eq!(ftl.step(&mut Ignore), Ok(None));
}

#[test]
fn a_removed_owners_blocks_are_erased_in_the_background() {
    let mut ftl = layer(Config { isolation: Isolation::Static, ..quiet() });
    ftl.add_owner(DISK, OwnerSpec::pages(320)).unwrap();
    for page in 0..320 {
        ftl.write(DISK, page, &mut Ignore).unwrap();
    }
    let all = ftl.geometry().blocks();
    ftl.remove_owner(DISK).unwrap();
    assert!(ftl.free_blocks() < all);
    let mut ops = Vec::new();
    while let Some(work) = ftl.step(&mut ops).unwrap() {
        assert_eq!(work, Work { owner: None, kind: WorkKind::Erase, cause: Cause::Collection });
    }
    assert_eq!(ftl.free_blocks(), all);
    assert_eq!(ftl.locate(DISK, 0), None);
    assert_eq!(ftl.write(DISK, 0, &mut Ignore), Err(FtlError::UnknownOwner(DISK)));
}

#[test]
fn writes_go_round_the_dies() {
    let mut ftl = layer(quiet());
    ftl.add_owner(DISK, OwnerSpec::pages(1_000)).unwrap();
    let mut dies = Vec::new();
    for page in 0..16 {
        ftl.write(DISK, page, &mut Ignore).unwrap();
        let at = ftl.locate(DISK, page).unwrap();
        let geometry = ftl.geometry();
        dies.push(geometry.die_of(geometry.plane_of(geometry.block_of(at))));
    }
    for window in dies.chunks(4) {
        assert_eq!(window.iter().collect::<BTreeSet<_>>().len(), 4, "{dies:?}");
    }
}

#[test]
fn copies_stay_in_their_plane_unless_told_otherwise() {
    for streams in [Streams::Together, Streams::Apart] {
        let in_plane = aged(Config { streams, ..roomy() }, 70).stats();
        assert!(in_plane.copy_backs * 100 >= in_plane.moved * 95, "{in_plane:?}");
    }
    let never = aged(Config { copy_back: CopyBack::Never, ..roomy() }, 70).stats();
    assert_eq!(never.copy_backs, 0);
    assert!(never.moved > 0);
    let mut ftl = aged(roomy(), 70);
    let mut ops = Vec::new();
    for page in 0..1_000 {
        ftl.write(DISK, page, &mut ops).unwrap();
    }
    let geometry = ftl.geometry();
    let plane = |page: PageAddr| geometry.plane_of(geometry.block_of(page));
    for op in ops {
        if let Op::CopyBack { from, to, .. } = op {
            assert_eq!(plane(from), plane(to));
        }
    }
}

#[test]
fn a_read_says_where_and_costs_one_operation() {
    let mut ftl = layer(quiet());
    ftl.add_owner(DISK, OwnerSpec::pages(10)).unwrap();
    let mut ops = Vec::new();
    assert_eq!(ftl.read(DISK, 4, &mut ops), Ok(None));
    ftl.write(DISK, 4, &mut Ignore).unwrap();
    let at = ftl.read(DISK, 4, &mut ops).unwrap().unwrap();
    assert_eq!(ops, [Op::Read { page: at, cause: Cause::Host }]);
    assert_eq!(ftl.trim(DISK, 0, 10, &mut Ignore), Ok(1));
    assert_eq!(ftl.read(DISK, 4, &mut Ignore), Ok(None));
    assert_eq!(ftl.trim(DISK, 0, 10, &mut ops), Ok(0));
    assert_eq!(ops.len(), 1);
}

#[test]
fn bad_requests_are_refused_in_words() {
    let mut ftl = layer(quiet());
    ftl.add_owner(DISK, OwnerSpec::pages(10)).unwrap();
    let refused = ftl.write(DISK, 10, &mut Ignore).unwrap_err().to_string();
    assert_eq!(refused, "page 10 is outside owner 3's 10 pages");
    assert!(ftl.trim(DISK, 9, 2, &mut Ignore).is_err());
    assert!(ftl.trim(DISK, u32::MAX, u32::MAX, &mut Ignore).is_err());
    assert_eq!(ftl.trim(DISK, 10, 0, &mut Ignore), Ok(0));
    assert!(ftl.read(OwnerId(65_535), 0, &mut Ignore).is_err());
    assert_eq!(ftl.add_owner(DISK, OwnerSpec::pages(1)), Err(OwnerError::Exists(DISK)));
    assert_eq!(
        ftl.add_owner(OwnerId(4), OwnerSpec::pages(0)),
        Err(OwnerError::NoPages(OwnerId(4)))
    );
    let refused = ftl.add_owner(OwnerId(4), OwnerSpec::pages(4_096)).unwrap_err().to_string();
    assert_eq!(
        refused,
        "owner 4 needs 128 blocks for its pages and the least over-provisioning space, and 125 are left: \
         remove an owner, or make this one smaller"
    );
    assert_eq!(ftl.remove_owner(OwnerId(4)), Err(OwnerError::Unknown(OwnerId(4))));
    assert_eq!(ftl.grow_owner(OwnerId(4), 9), Err(OwnerError::Unknown(OwnerId(4))));
    ftl.check().unwrap();

    let none = Config { thresholds: Thresholds { foreground: 0, background: 0 }, ..quiet() };
    assert_eq!(
        Ftl::format(Image::new(geometry(1, 1, 9, 4)), none).err(),
        Some(ConfigError::NoForeground)
    );
    let most = Config { thresholds: Thresholds { foreground: u32::MAX, background: 0 }, ..quiet() };
    assert!(matches!(
        Ftl::format(Image::new(geometry(1, 1, 9, 4)), most).err(),
        Some(ConfigError::TooFewBlocks { .. })
    ));
}

#[test]
fn a_medium_that_is_not_erased_is_erased_before_its_use() {
    let mut ftl = aged(quiet(), 50);
    while ftl.step(&mut Ignore).unwrap().is_some() {}
    let mut ftl = Ftl::format(ftl.into_medium(), quiet()).unwrap();
    let pages = ftl.geometry().pages() / 2;
    ftl.add_owner(DISK, OwnerSpec::pages(pages)).unwrap();
    for page in 0..pages {
        ftl.write(DISK, page, &mut Ignore).unwrap();
    }
    ftl.check().unwrap();
}
