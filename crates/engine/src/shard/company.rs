//! Whose work the shard's last turns were.

/// So many turns in a row for one port and no other make it the shard's only company: a millisecond or less where it matters.
const TURNS: u32 = 32;

/// Counts turns that one port had to itself. O(1).
#[derive(Debug, Default)]
pub(super) struct Company {
    port: u32,
    turns: u32,
}

impl Company {
    /// A turn has called these ports. One that called none says nothing.
    pub(super) fn after_turn(&mut self, called: &[u32]) {
        match called {
            [] => {}
            [only] if *only == self.port => self.turns = self.turns.saturating_add(1),
            [first, ..] => *self = Company { port: *first, turns: 0 },
        }
    }

    /// Were the last turns one port's alone?
    pub(super) fn is_one(&self) -> bool {
        self.turns >= TURNS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_port_for_many_turns_is_company_and_a_second_ends_it() {
        let mut company = Company::default();
        for _ in 0..=TURNS {
            assert!(!company.is_one());
            company.after_turn(&[7]);
            company.after_turn(&[]);
        }
        assert!(company.is_one());
        company.after_turn(&[7, 8]);
        assert!(!company.is_one());
        (0..TURNS).for_each(|_| company.after_turn(&[7]));
        assert!(company.is_one());
        company.after_turn(&[8]);
        assert!(!company.is_one());
    }
}
