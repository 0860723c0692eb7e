//! What several tests use.

pub mod workload;

use headgate_flash::{BlockId, Geometry, Image, Medium, MediumError, PageAddr, PageState, Record};
use headgate_units::Bytes;
use std::cell::RefCell;
use std::rc::Rc;

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u32
    }

    pub fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }
}

pub fn geometry(dies: u32, planes: u32, blocks: u32, pages: u32) -> Geometry {
    Geometry::new(dies, planes, blocks, pages, Bytes::from_kib(4)).unwrap()
}

/// What a [`Fragile`] medium shares with its test.
pub struct Outside {
    /// What the next page that a host writes contains.
    pub data: u64,
    /// Changes until power goes; `None`: it stays.
    pub fuse: Option<u64>,
    pub rng: Rng,
}

/// A medium with data, which loses power in the middle of a change.
#[derive(Clone)]
pub struct Fragile {
    pub image: Image,
    pub data: Vec<u64>,
    pub outside: Rc<RefCell<Outside>>,
}

/// How far a change got.
enum Power {
    Stays,
    /// Before anything happened, in the middle, or before the answer.
    Goes(u32),
}

impl Fragile {
    pub fn new(geometry: Geometry, outside: Rc<RefCell<Outside>>) -> Fragile {
        Fragile { image: Image::new(geometry), data: vec![0; geometry.pages() as usize], outside }
    }

    fn power(&self) -> Power {
        let mut outside = self.outside.borrow_mut();
        match outside.fuse {
            None => Power::Stays,
            Some(0) => Power::Goes(outside.rng.below(3)),
            Some(left) => {
                outside.fuse = Some(left - 1);
                Power::Stays
            }
        }
    }

    fn place(&mut self, page: PageAddr, record: Record, data: u64) -> Result<(), MediumError> {
        let lost = Err(MediumError::Failed("power".into()));
        match self.power() {
            Power::Goes(0) => lost,
            Power::Goes(1) => {
                self.image.program(page, record)?;
                self.image.spoil(page);
                lost
            }
            Power::Goes(_) => {
                self.image.program(page, record)?;
                self.data[page.0 as usize] = data;
                lost
            }
            Power::Stays => {
                self.image.program(page, record)?;
                self.data[page.0 as usize] = data;
                Ok(())
            }
        }
    }
}

impl Medium for Fragile {
    fn geometry(&self) -> Geometry {
        self.image.geometry()
    }

    fn program(&mut self, page: PageAddr, record: Record) -> Result<(), MediumError> {
        let data = self.outside.borrow().data;
        self.place(page, record, data)
    }

    fn copy(&mut self, from: PageAddr, to: PageAddr, record: Record) -> Result<(), MediumError> {
        self.place(to, record, self.data[from.0 as usize])
    }

    fn erase(&mut self, block: BlockId) -> Result<(), MediumError> {
        let lost = Err(MediumError::Failed("power".into()));
        match self.power() {
            Power::Goes(0) => lost,
            Power::Goes(1) => {
                // Some pages are gone, others as they were.
                for offset in 0..self.geometry().pages_per_block() {
                    if self.outside.borrow_mut().rng.one_in(2) {
                        self.image.spoil(self.geometry().page_at(block, offset));
                    }
                }
                lost
            }
            Power::Goes(_) => {
                self.image.erase(block)?;
                lost
            }
            Power::Stays => self.image.erase(block),
        }
    }

    fn page(&self, page: PageAddr) -> PageState {
        self.image.page(page)
    }

    fn erases(&self, block: BlockId) -> u32 {
        self.image.erases(block)
    }
}
