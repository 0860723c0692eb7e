//! A simple model beside the layer: a million random operations, owners that come and go, power
//! that fails at any change of the medium, and everything rebuilt from the records.
//! `FLASH_SEEDS=20000` runs more than the 200 trials of 5,000 operations.

use crate::common::{Fragile, Outside, Rng, geometry};
use headgate_flash::{
    CellTimes, Config, Control, CopyBack, Ftl, FtlError, Ignore, Isolation, KnownOwner, Levelling,
    OwnerError, OwnerId, OwnerSpec, Rating, RecoverError, Streams, Thresholds, Victims,
};
use headgate_units::{Iops, Shares};
use std::cell::RefCell;
use std::rc::Rc;

/// What a page may hold. More than one thing only where power went in the middle of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Page(Vec<Option<u64>>);

struct Disk {
    known: KnownOwner,
    pages: Vec<Page>,
}

struct Trial {
    seed: u64,
    rng: Rng,
    outside: Rc<RefCell<Outside>>,
    ftl: Option<Ftl<Fragile>>,
    disks: Vec<Disk>,
    version: u64,
    crashes: u64,
    did: u64,
}

fn config(rng: &mut Rng) -> Config {
    let control = Control {
        window: 1 + rng.below(40),
        rating: if rng.one_in(2) { Rating::Given } else { Rating::Sought },
        ..Control::new(Iops::new(1 + u64::from(rng.below(4_000))).unwrap(), CellTimes::DISKSIM)
    };
    Config {
        isolation: match rng.below(3) {
            0 => Isolation::Shared,
            1 => Isolation::Static,
            _ => Isolation::Dynamic(control),
        },
        victims: [Victims::Greedy, Victims::CostBenefit, Victims::Fifo][rng.below(3) as usize],
        thresholds: Thresholds { foreground: 1 + rng.below(2), background: rng.below(6) },
        stripe: 1 + rng.below(5),
        streams: if rng.one_in(2) { Streams::Together } else { Streams::Apart },
        copy_back: if rng.one_in(2) { CopyBack::InPlane } else { CopyBack::Never },
        levelling: if rng.one_in(2) { Levelling::Off } else { Levelling::Spread(rng.below(6)) },
    }
}

impl Trial {
    fn new(seed: u64) -> Trial {
        let mut rng = Rng(seed);
        let outside =
            Outside { data: 0, fuse: Some(u64::from(rng.below(3_000))), rng: Rng(rng.next()) };
        let outside = Rc::new(RefCell::new(outside));
        let geometry =
            geometry(1 + rng.below(3), 1 + rng.below(2), 30 + rng.below(20), 2 + rng.below(14));
        let medium = Fragile::new(geometry, Rc::clone(&outside));
        let ftl = Ftl::format(medium, config(&mut rng)).unwrap();
        Trial {
            seed,
            rng,
            outside,
            ftl: Some(ftl),
            disks: Vec::new(),
            version: 0,
            crashes: 0,
            did: 0,
        }
    }

    fn ftl(&mut self) -> &mut Ftl<Fragile> {
        self.ftl.as_mut().unwrap()
    }

    /// Power comes back: perhaps under another configuration.
    fn crash(&mut self) {
        self.crashes += 1;
        assert_eq!(self.ftl().step(&mut Ignore), Err(FtlError::Stopped), "seed {}", self.seed);
        let old = self.ftl.take().unwrap();
        let same = old.config().clone();
        let medium = old.into_medium();
        let known: Vec<KnownOwner> = self.disks.iter().map(|disk| disk.known).collect();
        self.outside.borrow_mut().fuse = None;
        let config = if self.rng.one_in(2) { same.clone() } else { config(&mut self.rng) };
        let ftl = match Ftl::recover(medium.clone(), config, &known) {
            Ok(ftl) => ftl,
            // Another isolation may need more space than there is. The old one does not.
            Err(RecoverError::Owner(OwnerError::NoSpace { .. })) => {
                Ftl::recover(medium, same, &known).unwrap()
            }
            Err(error) => panic!("seed {}: {error}", self.seed),
        };
        self.ftl = Some(ftl);
        let next = u64::from(self.rng.below(3_000));
        self.outside.borrow_mut().fuse = Some(next);
        self.compare();
    }

    fn compare(&mut self) {
        let seed = self.seed;
        let ftl = self.ftl.as_ref().unwrap();
        if let Err(error) = ftl.check() {
            panic!(
                "seed {seed}, after {} operations and {} crashes: {error}",
                self.did, self.crashes
            );
        }
        for disk in &mut self.disks {
            for (number, page) in disk.pages.iter_mut().enumerate() {
                let at = ftl.locate(disk.known.id, number as u32);
                let found = at.map(|at| ftl.medium().data[at.0 as usize]);
                let id = disk.known.id;
                assert!(
                    page.0.contains(&found),
                    "seed {seed}: owner {id} page {number}: {found:?}, not {page:?}"
                );
                // What a crash left open is decided by the first look at it.
                *page = Page(vec![found]);
            }
        }
    }

    /// Takes note of how an operation ended. Returns whether it was done.
    fn done<T>(&mut self, outcome: Result<T, FtlError>) -> Option<T> {
        match outcome {
            Ok(done) => Some(done),
            Err(FtlError::Medium(_)) => None,
            Err(error) => {
                let (seed, did, crashes) = (self.seed, self.did, self.crashes);
                let ftl = self.ftl();
                let standing: Vec<_> = ftl.owners().map(|known| ftl.standing(known.id)).collect();
                let (geometry, free) = (ftl.geometry(), ftl.free_blocks());
                panic!(
                    "seed {seed}: {error} after {did} operations, {crashes} crashes: {geometry:?}, {:?}, {free} free, {standing:?}",
                    ftl.config()
                )
            }
        }
    }

    fn come(&mut self) {
        let id = OwnerId(self.rng.below(7) as u16);
        let most = self.ftl().geometry().pages() / 3;
        let spec = OwnerSpec {
            pages: 1 + self.rng.below(most),
            shares: Shares::new(1 + u64::from(self.rng.below(9))).unwrap(),
            target: None,
        };
        if let Ok(known) = self.ftl().add_owner(id, spec) {
            let pages = vec![Page(vec![None]); spec.pages as usize];
            self.disks.push(Disk { known, pages });
        }
    }

    fn go(&mut self) {
        if !self.disks.is_empty() {
            let disk = self.rng.below(self.disks.len() as u32) as usize;
            let disk = self.disks.swap_remove(disk);
            self.ftl().remove_owner(disk.known.id).unwrap();
        }
    }

    fn grow(&mut self, d: usize) {
        let Disk { known, pages } = &self.disks[d];
        let (id, before) = (known.id, pages.len() as u32);
        let more = self.rng.below(self.ftl.as_ref().unwrap().geometry().pages() / 4);
        match self.ftl().grow_owner(id, before + more) {
            Ok(known) => {
                let disk = &mut self.disks[d];
                disk.known = known;
                disk.pages.resize((before + more) as usize, Page(vec![None]));
            }
            Err(OwnerError::NoSpace { needed, left, .. }) => assert!(needed > left),
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn write(&mut self, d: usize) {
        self.version += 1;
        let version = self.version;
        self.outside.borrow_mut().data = version;
        let pages = self.disks[d].pages.len() as u32;
        // Skewed: half of the writes to an eighth of the pages.
        let page =
            if self.rng.one_in(2) { self.rng.below(pages / 8 + 1) } else { self.rng.below(pages) };
        let page = page.min(pages - 1);
        let id = self.disks[d].known.id;
        let outcome = self.ftl().write(id, page, &mut Ignore);
        match self.done(outcome) {
            Some(()) => self.disks[d].pages[page as usize] = Page(vec![Some(version)]),
            None => {
                self.disks[d].pages[page as usize].0.push(Some(version));
                self.crash();
            }
        }
    }

    fn trim(&mut self, d: usize) {
        let pages = self.disks[d].pages.len() as u32;
        let first = self.rng.below(pages);
        let count = (1 + self.rng.below(1 + pages / 4)).min(pages - first);
        let count = if self.rng.one_in(4) { 1 } else { count };
        let id = self.disks[d].known.id;
        let outcome = self.ftl().trim(id, first, count, &mut Ignore);
        let range = first as usize..(first + count) as usize;
        match self.done(outcome) {
            Some(0) => {}
            Some(gone) => {
                let mut had = 0;
                for page in &mut self.disks[d].pages[range] {
                    if page.0 != [None] {
                        had += 1;
                    }
                    *page = Page(vec![None]);
                }
                assert_eq!(gone, had, "seed {}", self.seed);
            }
            None => {
                for page in &mut self.disks[d].pages[range] {
                    page.0.push(None);
                }
                self.crash();
            }
        }
    }

    fn background(&mut self) {
        let announced = self.ftl().work();
        let outcome = self.ftl().step(&mut Ignore);
        match self.done(outcome) {
            Some(did) => assert_eq!(did, announced, "seed {}", self.seed),
            None => self.crash(),
        }
    }

    fn run(&mut self, operations: u64) {
        for _ in 0..operations {
            self.did += 1;
            let some = if self.disks.is_empty() {
                None
            } else {
                Some(self.rng.below(self.disks.len() as u32))
            };
            match (self.rng.below(400), some) {
                (0, _) | (_, None) => self.come(),
                (1, _) if self.rng.one_in(2) => self.go(),
                (1, Some(d)) => self.grow(d as usize),
                (2..=5, _) => self.compare(),
                (6..=15, Some(d)) => self.trim(d as usize),
                (16..=60, _) => self.background(),
                (_, Some(d)) => self.write(d as usize),
            }
        }
        self.compare();
    }
}

#[test]
fn a_million_operations_with_crashes() {
    let seeds =
        std::env::var("FLASH_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(200);
    let (mut operations, mut crashes) = (0, 0);
    for seed in 0..seeds {
        let mut trial = Trial::new(seed);
        trial.run(5_000);
        operations += trial.did;
        crashes += trial.crashes;
    }
    println!("{operations} operations, {crashes} crashes");
    assert!(operations >= 1_000_000 && crashes >= 500);
}
