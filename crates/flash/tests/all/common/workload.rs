//! Three workloads after those of the paper, page writes only: an OLTP database (F), a storage
//! server (M), a mail server (E).

use crate::common::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Requests of one page, 80 % of them to a fifth of the pages.
    Financial,
    /// Requests of 4 pages, 60 % of them to two fifths.
    Msn,
    /// Requests of 4 to 8 pages in runs of 1 to 4 that follow each other, anywhere.
    Exchange,
}

/// A writer of pages.
pub struct Workload {
    kind: Kind,
    pages: u32,
    rng: Rng,
    next: u32,
    /// Pages left of the request.
    left: u32,
    /// Requests left of the run.
    run: u32,
    scatter: u32,
}

impl Workload {
    pub fn new(kind: Kind, pages: u32, seed: u64) -> Workload {
        // A stride without a common factor scatters what is hot over the disk.
        let scatter =
            (0..).map(|i| 2_654_435_761 % pages + i).find(|&s| gcd(s, pages) == 1).unwrap_or(1);
        Workload { kind, pages, rng: Rng(seed), next: 0, left: 0, run: 0, scatter }
    }

    fn place(&mut self, hot_percent: u32, of: u32, size: u32) -> u32 {
        let places = self.pages / size;
        let hot = places * of / 100;
        let place = if self.rng.below(100) < hot_percent {
            self.rng.below(hot.max(1))
        } else {
            hot + self.rng.below((places - hot).max(1))
        };
        let place = (u64::from(place) * u64::from(self.scatter) % u64::from(places)) as u32;
        place * size
    }

    /// The next page to write.
    pub fn next(&mut self) -> u32 {
        if self.left == 0 {
            match self.kind {
                Kind::Financial => (self.next, self.left) = (self.place(80, 20, 1), 1),
                Kind::Msn => (self.next, self.left) = (self.place(60, 40, 4), 4),
                Kind::Exchange => {
                    if self.run == 0 {
                        self.run = 1 + self.rng.below(4);
                        self.next = self.rng.below(self.pages);
                    }
                    self.run -= 1;
                    self.left = 4 + self.rng.below(5);
                }
            }
        }
        self.left -= 1;
        let page = self.next % self.pages;
        self.next = page + 1;
        page
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
