use crate::Event;

/// Which events somebody asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Those with larger numbers.
    pub after: u64,
    /// Not before, in milliseconds since 1970.
    pub since_ms: u64,
    /// Those that concern this disk.
    pub disk: Option<String>,
}

impl Filter {
    /// Whether it is one of them.
    pub fn takes(&self, event: &Event) -> bool {
        let concerns = |disk: &String| event.entry.disks.contains(disk);
        event.id > self.after
            && event.at_ms >= self.since_ms
            && self.disk.as_ref().is_none_or(concerns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Entry;

    #[test]
    fn each_part_of_a_filter_counts() {
        let event = |id, at_ms| Event { id, at_ms, entry: Entry::done("x").of_disk("db") };
        let filter = Filter { after: 5, since_ms: 100, disk: Some("db".into()) };
        assert!(filter.takes(&event(6, 100)));
        assert!(!filter.takes(&event(5, 100)) && !filter.takes(&event(6, 99)));
        let other = Filter { disk: Some("d".into()), ..filter };
        assert!(!other.takes(&event(6, 100)), "a part of a name is none");
        assert!(Filter::default().takes(&event(1, 0)));
    }
}
