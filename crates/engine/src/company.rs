//! Whose work the last turns were: of a shard's ports, or of a port's rings. Who has been alone is looked at instead of told of.

/// So many turns in a row for one and no other make it the only company: a millisecond or less where it matters.
pub const TURNS: u32 = 32;

/// Counts turns that one had to itself, by number. O(1).
#[derive(Debug, Default)]
pub struct Company {
    who: u32,
    turns: u32,
}

impl Company {
    /// A turn was for these. One that was for none says nothing.
    pub fn after_turn(&mut self, called: &[u32]) {
        match called {
            [] => {}
            [only] if *only == self.who => self.turns = self.turns.saturating_add(1),
            [first, ..] => *self = Company { who: *first, turns: 0 },
        }
    }

    /// Were the last [`TURNS`] turns for one alone?
    pub fn is_one(&self) -> bool {
        self.turns >= TURNS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_for_many_turns_is_company_and_a_second_ends_it() {
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
