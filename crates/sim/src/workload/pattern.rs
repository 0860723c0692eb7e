use super::orders::Issue;
use crate::random::Stream;
use crate::scenario::Pattern;
use headgate_devices::IoKind;
use headgate_units::Bytes;

/// Draws requests of a [`Pattern`].
#[derive(Clone)]
pub(crate) struct Source {
    pattern: Pattern,
    weights: u64,
    /// Where the last request ended, from the extent's first byte.
    cursor: u64,
}

impl Source {
    pub(crate) fn new(pattern: &Pattern) -> Source {
        let weights = pattern.sizes.iter().map(|&(_, weight)| u64::from(weight)).sum();
        Source { pattern: pattern.clone(), weights, cursor: 0 }
    }

    pub(crate) fn next(&mut self, disk: usize, tag: u32, stream: &mut Stream) -> Issue {
        let kind = if stream.percent(self.pattern.read) { IoKind::Read } else { IoKind::Write };
        self.of_kind(kind, disk, tag, stream)
    }

    #[inline]
    pub(crate) fn of_kind(
        &mut self,
        kind: IoKind,
        disk: usize,
        tag: u32,
        stream: &mut Stream,
    ) -> Issue {
        let bytes = self.size(stream);
        let (first, length) = self.pattern.extent;
        let places = (length / bytes.0).max(1);
        if stream.percent(self.pattern.random) {
            self.cursor = self.place(places, stream) * bytes.0;
        } else if self.cursor + bytes.0 > length {
            self.cursor = 0;
        }
        let offset = first + self.cursor;
        self.cursor += bytes.0;
        Issue { disk, kind, offset, bytes, tag }
    }

    #[inline]
    fn place(&self, places: u64, stream: &mut Stream) -> u64 {
        let Some((requests, part)) = self.pattern.hot else { return stream.below(places) };
        let hot = (places * u64::from(part) / 100).max(1);
        if stream.percent(requests) || hot == places {
            stream.below(hot)
        } else {
            hot + stream.below(places - hot)
        }
    }

    #[inline]
    fn size(&self, stream: &mut Stream) -> Bytes {
        if let [(size, _)] = self.pattern.sizes[..] {
            return size;
        }
        let mut left = stream.below(self.weights);
        for &(size, weight) in &self.pattern.sizes {
            match left.checked_sub(u64::from(weight)) {
                Some(rest) => left = rest,
                None => return size,
            }
        }
        Bytes::from_kib(4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(read: u8, random: u8) -> Pattern {
        Pattern {
            read,
            random,
            hot: None,
            sizes: vec![(Bytes(4096), 3), (Bytes(8192), 1)],
            extent: (1 << 20, 1 << 24),
        }
    }

    #[test]
    fn requests_have_the_mix_asked_for_and_stay_in_the_extent() {
        let mut stream = Stream::new(1, "pattern");
        let mut source = Source::new(&pattern(75, 40));
        let (mut reads, mut small, mut jumps, mut end) = (0, 0, 0, 1 << 20);
        for _ in 0..100_000 {
            let issue = source.next(0, 0, &mut stream);
            assert!(
                issue.offset >= 1 << 20 && issue.offset + issue.bytes.0 <= (1 << 20) + (1 << 24)
            );
            reads += u32::from(issue.kind == IoKind::Read);
            small += u32::from(issue.bytes.0 == 4096);
            jumps += u32::from(issue.offset != end);
            end = issue.offset + issue.bytes.0;
        }
        assert!((74_500..75_500).contains(&reads), "{reads}");
        assert!((74_500..75_500).contains(&small), "{small}");
        assert!(
            (39_300..40_700).contains(&jumps),
            "{jumps}: wraps and accidental neighbours are few"
        );
    }

    #[test]
    fn four_fifths_go_to_the_hot_fifth() {
        let mut stream = Stream::new(1, "hot");
        let mut source = Source::new(&Pattern { hot: Some((80, 20)), ..pattern(100, 100) });
        let (mut hot, mut last) = (0, 0);
        for _ in 0..100_000 {
            let issue = source.next(0, 0, &mut stream);
            let place = issue.offset - (1 << 20);
            last = last.max(place + issue.bytes.0);
            if place < (1 << 24) / 5 {
                hot += 1;
            }
        }
        assert!((79_500..80_500).contains(&hot), "{hot}");
        assert_eq!(last, 1 << 24, "the rest is used as well");
    }

    #[test]
    fn a_sequential_pattern_starts_again_at_the_extents_end() {
        let mut stream = Stream::new(1, "pattern");
        let mut source = Source::new(&Pattern {
            sizes: vec![(Bytes(4096), 1)],
            extent: (0, 10_000),
            ..pattern(100, 0)
        });
        let offsets: Vec<u64> = (0..4).map(|_| source.next(0, 0, &mut stream).offset).collect();
        assert_eq!(offsets, [0, 4096, 0, 4096]);
    }
}
