use headgate_units::Bytes;
use thiserror::Error;

/// An erase block, numbered through the whole medium from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// A physical page, numbered through the whole medium from 0: block by block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageAddr(pub u32);

/// A plane, numbered through the whole medium from 0: first one plane of each die, then the next.
///
/// Neighbouring numbers are different dies, so whoever goes round the planes keeps all dies busy
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlaneId(pub u32);

/// How a medium is built: pages in erase blocks in planes in dies.
///
/// Blocks are numbered across the planes: block *b* is in plane *b* mod the number of planes, and
/// blocks of one row (a superblock) have neighbouring numbers. Zoned storage has one die with one
/// plane; its zones are blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    dies: u32,
    planes: u32,
    blocks: u32,
    pages: u32,
    page: Bytes,
    /// log2 of `pages`, where it is a power of two: spares the hot path a division.
    shift: Option<u32>,
}

/// A geometry that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GeometryError {
    /// A number is outside its range.
    #[error("{what} must be {least} to {most}, not {given}")]
    Range {
        /// Which number.
        what: &'static str,
        /// Its least value.
        least: u64,
        /// Its greatest value.
        most: u64,
        /// What was given.
        given: u64,
    },
    /// More pages than a map of 32-bit entries can address.
    #[error(
        "{given} pages are more than the {most} that one map addresses: take larger pages or several media"
    )]
    TooLarge {
        /// Pages asked for.
        given: u64,
        /// The most there can be.
        most: u64,
    },
}

fn within(what: &'static str, given: u64, least: u64, most: u64) -> Result<(), GeometryError> {
    if given < least || given > most {
        return Err(GeometryError::Range { what, least, most, given });
    }
    Ok(())
}

impl Geometry {
    /// The most pages of a medium: 2³¹ - 2, which is 8 TiB of 4 KiB pages or 32 TiB of 16 KiB
    /// pages.
    pub const MOST_PAGES: u64 = (1 << 31) - 2;
    /// The most pages of a block.
    pub const MOST_PAGES_PER_BLOCK: u32 = 65_535;

    /// A medium of `dies` dies with `planes` planes each, `blocks` blocks in each plane, `pages`
    /// pages of `page` bytes in each block.
    ///
    /// # Errors
    /// [`GeometryError`]: none of them may be zero, a block has at least 2 and at most 65,535
    /// pages, pages are at most 1 MiB, and all pages together at most [`Geometry::MOST_PAGES`].
    pub fn new(
        dies: u32,
        planes: u32,
        blocks: u32,
        pages: u32,
        page: Bytes,
    ) -> Result<Geometry, GeometryError> {
        within("the number of dies", dies.into(), 1, 65_536)?;
        within("planes per die", planes.into(), 1, 256)?;
        within("blocks per plane", blocks.into(), 1, 1 << 30)?;
        within("pages per block", pages.into(), 2, Geometry::MOST_PAGES_PER_BLOCK.into())?;
        within("a page in bytes", page.0, 1, 1 << 20)?;
        let given = u128::from(dies) * u128::from(planes) * u128::from(blocks) * u128::from(pages);
        if given > u128::from(Geometry::MOST_PAGES) {
            let given = u64::try_from(given).unwrap_or(u64::MAX);
            return Err(GeometryError::TooLarge { given, most: Geometry::MOST_PAGES });
        }
        let shift = pages.is_power_of_two().then(|| pages.trailing_zeros());
        Ok(Geometry { dies, planes, blocks, pages, page, shift })
    }

    /// Dies of the medium.
    pub fn dies(&self) -> u32 {
        self.dies
    }

    /// Planes of each die.
    pub fn planes_per_die(&self) -> u32 {
        self.planes
    }

    /// Planes of the medium.
    pub fn planes(&self) -> u32 {
        self.dies * self.planes
    }

    /// Erase blocks of the medium.
    pub fn blocks(&self) -> u32 {
        self.dies * self.planes * self.blocks
    }

    /// Pages of each block: N_p of the equations.
    pub fn pages_per_block(&self) -> u32 {
        self.pages
    }

    /// Pages of the medium.
    pub fn pages(&self) -> u32 {
        self.blocks() * self.pages
    }

    /// Size of a page, without its out-of-band area.
    pub fn page_size(&self) -> Bytes {
        self.page
    }

    /// Size of the medium.
    pub fn capacity(&self) -> Bytes {
        Bytes(u64::from(self.pages()) * self.page.0)
    }

    /// The plane of a block.
    pub fn plane_of(&self, block: BlockId) -> PlaneId {
        PlaneId(block.0 % self.planes())
    }

    /// The die of a plane.
    pub fn die_of(&self, plane: PlaneId) -> u32 {
        plane.0 % self.dies
    }

    /// The block of a page.
    pub fn block_of(&self, page: PageAddr) -> BlockId {
        match self.shift {
            Some(shift) => BlockId(page.0 >> shift),
            None => BlockId(page.0 / self.pages),
        }
    }

    /// The page's place within its block, from 0.
    pub fn offset_of(&self, page: PageAddr) -> u32 {
        page.0 - self.block_of(page).0 * self.pages
    }

    /// A page by its block and its place there.
    pub fn page_at(&self, block: BlockId, offset: u32) -> PageAddr {
        PageAddr(block.0 * self.pages + offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_go_round_the_dies_before_the_planes() {
        let geometry = Geometry::new(4, 2, 3, 10, Bytes::from_kib(4)).unwrap();
        assert_eq!((geometry.planes(), geometry.blocks(), geometry.pages()), (8, 24, 240));
        let dies: Vec<u32> =
            (0..8).map(|b| geometry.die_of(geometry.plane_of(BlockId(b)))).collect();
        assert_eq!(dies, [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(geometry.plane_of(BlockId(9)), PlaneId(1));
        for page in 0..geometry.pages() {
            let page = PageAddr(page);
            assert_eq!(geometry.page_at(geometry.block_of(page), geometry.offset_of(page)), page);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_range() {
        let kib = Bytes::from_kib(4);
        assert!(Geometry::new(0, 1, 1, 64, kib).is_err());
        assert!(Geometry::new(1, 1, 1, 1, kib).is_err());
        assert!(Geometry::new(1, 1, 1, 64, Bytes(0)).is_err());
        let error = Geometry::new(1, 1, 1 << 20, 4096, kib).unwrap_err().to_string();
        assert_eq!(
            error,
            "4294967296 pages are more than the 2147483646 that one map addresses: take larger pages or several media"
        );
    }
}
