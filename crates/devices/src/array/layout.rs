use super::divisor::Divisor;
use super::spec::{ArraySpec, Raid};
use alloc::vec;
use alloc::vec::Vec;
use headgate_units::Bytes;

/// A piece of one spindle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub spindle: u32,
    /// First byte on the spindle.
    pub start: u64,
    pub len: u64,
}

/// What the spindles do for one write: all reads, and when they are done all writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub reads: Vec<Extent>,
    pub writes: Vec<Extent>,
}

/// Where a byte of the array lies.
///
/// A *row* is one stripe unit on each spindle at the same place; with RAID-5 one of the units is
/// parity, which rotates leftwards from row to row, and the data units follow it in order
/// (left-symmetric).
#[derive(Clone, Debug)]
pub(super) struct Layout {
    raid: Raid,
    spindles: Divisor,
    /// Data units in a row.
    data: u64,
    unit: Divisor,
    /// Data bytes in a row.
    row: Divisor,
    rows: u64,
}

impl Layout {
    pub(super) fn new(spec: &ArraySpec, capacity: Bytes) -> Layout {
        let spindles = u64::from(spec.spindles);
        let data = match spec.raid {
            Raid::Raid0 => spindles,
            Raid::Raid5 => spindles - 1,
        };
        let unit = spec.unit.0;
        Layout {
            raid: spec.raid,
            spindles: Divisor::new(spindles),
            data,
            unit: Divisor::new(unit),
            row: Divisor::new(data * unit),
            rows: capacity.0.div_ceil(data * unit).max(1),
        }
    }

    /// Data bytes in a row.
    pub(super) fn row_bytes(&self) -> u64 {
        self.row.get()
    }

    /// Bytes in use on each spindle.
    pub(super) fn span(&self) -> u64 {
        self.rows * self.unit.get()
    }

    /// The range as pieces of rows: row, first and past-the-end byte in it.
    pub(super) fn rows_of(
        &self,
        start: u64,
        end: u64,
    ) -> impl Iterator<Item = (u64, u64, u64)> + Clone + use<> {
        let row_bytes = self.row_bytes();
        let rows = if start < end { self.row.div(start)..self.row.div_ceil(end) } else { 0..0 };
        rows.map(move |row| {
            let base = row * row_bytes;
            (row, start.max(base) - base, end.min(base + row_bytes) - base)
        })
    }

    fn parity_spindle(&self, row: u64) -> u64 {
        self.spindles.get() - 1 - self.spindles.rem(row)
    }

    fn data_spindle(&self, row: u64, index: u64) -> u64 {
        match self.raid {
            Raid::Raid0 => index,
            Raid::Raid5 => self.spindles.rem(self.parity_spindle(row) + 1 + index),
        }
    }

    fn extent(&self, spindle: u64, row: u64, (from, to): (u64, u64)) -> Extent {
        Extent { spindle: spindle as u32, start: row * self.unit.get() + from, len: to - from }
    }

    /// The whole of some rows on every spindle, parity included.
    fn whole_rows(&self, from: u64, to: u64) -> impl Iterator<Item = Extent> + '_ {
        let len = (to - from) * self.unit.get();
        (0..self.spindles.get()).map(move |spindle| Extent {
            spindle: spindle as u32,
            start: from * self.unit.get(),
            len,
        })
    }

    /// The part of a row's range that lies in each of its data units: index of the unit, range
    /// within the unit.
    fn units_of(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, (u64, u64))> + use<> {
        let unit = self.unit.get();
        (self.unit.div(from)..self.unit.div_ceil(to)).map(move |index| {
            let base = index * unit;
            (index, (from.max(base) - base, to.min(base + unit) - base))
        })
    }

    /// One piece for each spindle that holds some of the range. A parity unit between two data
    /// units is passed over, at the cost of reading it. `pieces` comes empty.
    pub(super) fn pieces(&self, start: u64, end: u64, pieces: &mut Vec<Extent>) {
        if let Some(piece) = self.only_piece(start, end) {
            return pieces.push(piece);
        }
        let mut add =
            |new: Extent| match pieces.iter_mut().find(|piece| piece.spindle == new.spindle) {
                Some(piece) => {
                    let end = (piece.start + piece.len).max(new.start + new.len);
                    piece.start = piece.start.min(new.start);
                    piece.len = end - piece.start;
                }
                None => pieces.push(new),
            };
        let row_bytes = self.row_bytes();
        let (first_whole, end_whole) = (self.row.div_ceil(start), self.row.div(end));
        for (row, from, to) in self.rows_of(start, end.min(first_whole * row_bytes)) {
            self.units_of(from, to).for_each(|(index, within)| {
                add(self.extent(self.data_spindle(row, index), row, within))
            });
        }
        if first_whole < end_whole {
            self.whole_rows(first_whole, end_whole).for_each(&mut add);
        }
        for (row, from, to) in self.rows_of(start.max(end_whole.max(first_whole) * row_bytes), end)
        {
            self.units_of(from, to).for_each(|(index, within)| {
                add(self.extent(self.data_spindle(row, index), row, within))
            });
        }
    }

    /// The piece of a range that lies within one stripe unit, as most do.
    fn only_piece(&self, start: u64, end: u64) -> Option<Extent> {
        let (row, from) = self.row.div_rem(start);
        let (base, unit) = (start - from, self.unit.get());
        let index = self.unit.div(from);
        if end - base <= (index + 1) * unit {
            let within = (from - index * unit, end - base - index * unit);
            return (start < end).then(|| self.extent(self.data_spindle(row, index), row, within));
        }
        None
    }

    /// Writes a range that does not go through the cache. At most three plans: a part of a row,
    /// whole rows, a part.
    pub(super) fn write(&self, start: u64, end: u64) -> Vec<Plan> {
        if self.raid == Raid::Raid0 {
            let mut plan = Plan::default();
            self.pieces(start, end, &mut plan.writes);
            return vec![plan];
        }
        let row_bytes = self.row_bytes();
        let (first_whole, end_whole) = (self.row.div_ceil(start), self.row.div(end));
        let partial = |start, end| {
            self.rows_of(start, end).map(|(row, from, to)| {
                let mut plan = Plan::default();
                self.write_row(row, &[(from, to)], &mut plan);
                plan
            })
        };
        let mut plans: Vec<Plan> = partial(start, end.min(first_whole * row_bytes)).collect();
        if first_whole < end_whole {
            plans.push(Plan {
                reads: Vec::new(),
                writes: self.whole_rows(first_whole, end_whole).collect(),
            });
        }
        plans.extend(partial(start.max(end_whole.max(first_whole) * row_bytes), end));
        plans
    }

    /// Writes disjoint ascending ranges of one row. With RAID-5 a row that is not written whole
    /// needs old contents for its parity: of what is overwritten and of the parity
    /// (read-modify-write), or of all the rest (reconstruct-write), whichever is fewer reads.
    /// Within a unit, gaps between the ranges are passed over. `plan` comes empty.
    pub(super) fn write_row(&self, row: u64, ranges: &[(u64, u64)], plan: &mut Plan) {
        let Plan { reads, writes } = plan;
        let (mut last, mut changed) = (None, (u64::MAX, 0));
        for (index, (from, to)) in ranges.iter().flat_map(|&(from, to)| self.units_of(from, to)) {
            match writes.last_mut() {
                Some(write) if last == Some(index) => {
                    write.len = row * self.unit.get() + to - write.start
                }
                _ => writes.push(self.extent(self.data_spindle(row, index), row, (from, to))),
            }
            last = Some(index);
            changed = (from.min(changed.0), to.max(changed.1));
        }
        if self.raid == Raid::Raid0 || writes.is_empty() {
            return;
        }
        let parity = self.extent(self.parity_spindle(row), row, changed);
        let known = |index: u64| {
            let base = index * self.unit.get();
            ranges.iter().any(|&(from, to)| from <= base + changed.0 && base + changed.1 <= to)
        };
        let unknown = || (0..self.data).filter(|&index| !known(index));
        if unknown().count() < writes.len() + 1 {
            let rest = |index| self.extent(self.data_spindle(row, index), row, changed);
            reads.extend(unknown().map(rest));
        } else {
            reads.extend(writes.iter().copied().chain([parity]));
        }
        writes.push(parity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNIT: u64 = 4_096;

    fn layout(spindles: u32, raid: Raid) -> Layout {
        let spec = ArraySpec::new(spindles, raid).unwrap().with_unit(Bytes(UNIT)).unwrap();
        Layout::new(&spec, Bytes::from_gib(1))
    }

    fn row_plan(layout: &Layout, row: u64, to: u64) -> Plan {
        let mut plan = Plan::default();
        layout.write_row(row, &[(0, to)], &mut plan);
        plan
    }

    fn sizes(extents: &[Extent]) -> Vec<(u32, u64)> {
        extents.iter().map(|extent| (extent.spindle, extent.len)).collect()
    }

    #[test]
    fn a_small_raid5_write_reads_and_writes_data_and_parity() {
        let plans = layout(5, Raid::Raid5).write(512, 1_024);
        let expected = [
            Extent { spindle: 0, start: 512, len: 512 },
            Extent { spindle: 4, start: 512, len: 512 },
        ];
        assert_eq!(plans, [Plan { reads: expected.to_vec(), writes: expected.to_vec() }]);
    }

    #[test]
    fn whole_rows_are_written_without_reading() {
        let raid5 = layout(5, Raid::Raid5);
        let plans = raid5.write(0, 8 * UNIT);
        assert_eq!(plans.len(), 1);
        assert_eq!(plans[0].reads, []);
        assert_eq!(
            sizes(&plans[0].writes),
            (0..5).map(|spindle| (spindle, 2 * UNIT)).collect::<Vec<_>>()
        );
        assert_eq!(row_plan(&raid5, 7, 4 * UNIT).reads, []);
    }

    #[test]
    fn most_of_a_row_is_completed_from_the_rest() {
        let plan = row_plan(&layout(5, Raid::Raid5), 0, 3 * UNIT);
        assert_eq!(sizes(&plan.reads), [(3, UNIT)]);
        assert_eq!(sizes(&plan.writes), [(0, UNIT), (1, UNIT), (2, UNIT), (4, UNIT)]);
    }

    #[test]
    fn ragged_writes_are_cut_at_rows() {
        let plans = layout(5, Raid::Raid5).write(3 * UNIT, 9 * UNIT);
        let shapes: Vec<_> =
            plans.iter().map(|plan| (plan.reads.len(), plan.writes.len())).collect();
        assert_eq!(shapes, [(2, 2), (0, 5), (2, 2)]);
    }

    /// Byte by byte: spindle and place of a byte of the array.
    fn place(layout: &Layout, offset: u64) -> (u32, u64) {
        let (row, within) = (offset / layout.row_bytes(), offset % layout.row_bytes());
        (layout.data_spindle(row, within / UNIT) as u32, row * UNIT + within % UNIT)
    }

    proptest! {
        #[test]
        fn pieces_cover_the_range_and_little_else(
            spindles in 3u32..9,
            raid in prop::sample::select(vec![Raid::Raid0, Raid::Raid5]),
            start in 0u64..2_000,
            len in 1u64..2_000,
        ) {
            let layout = layout(spindles, raid);
            let (start, end) = (start * 512, (start + len) * 512);
            let mut pieces = Vec::new();
            layout.pieces(start, end, &mut pieces);
            for sector in (start..end).step_by(512) {
                let (spindle, at) = place(&layout, sector);
                let piece = pieces.iter().find(|piece| piece.spindle == spindle).unwrap();
                prop_assert!(piece.start <= at && at + 512 <= piece.start + piece.len);
            }
            let covered: u64 = pieces.iter().map(|piece| piece.len).sum();
            let rows = (end - start).div_ceil(layout.row_bytes()) + 1;
            let parity = if raid == Raid::Raid5 { rows * UNIT } else { 0 };
            prop_assert!(covered <= end - start + parity);
            let mut used: Vec<u32> = pieces.iter().map(|piece| piece.spindle).collect();
            used.sort_unstable();
            used.dedup();
            prop_assert_eq!(used.len(), pieces.len(), "one piece for each spindle");
        }

        #[test]
        fn parity_and_data_of_a_row_are_on_different_spindles(spindles in 3u32..9, row in 0u64..1_000) {
            let layout = layout(spindles, Raid::Raid5);
            let mut all: Vec<u64> = (0..layout.data).map(|index| layout.data_spindle(row, index)).collect();
            all.push(layout.parity_spindle(row));
            all.sort_unstable();
            prop_assert_eq!(all, (0..u64::from(spindles)).collect::<Vec<_>>());
        }
    }
}
