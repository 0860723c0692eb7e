//! The sole client: the port that had a shard's last turns to itself, or the ring that had a
//! port's. Only a sole client is polled.

/// Turns in a row that a client must have to itself to be the sole one: a millisecond or less where
/// it matters.
pub const TURNS: u32 = 32;

/// Counts the turns that one client had to itself. Clients are numbers. O(1).
#[derive(Debug, Default)]
pub struct SoleClient {
    who: u32,
    turns: u32,
}

impl SoleClient {
    /// A turn was for these clients. A turn for none changes nothing.
    pub fn after_turn(&mut self, called: &[u32]) {
        match called {
            [] => {}
            [only] if *only == self.who => self.turns = self.turns.saturating_add(1),
            [first, ..] => *self = SoleClient { who: *first, turns: 0 },
        }
    }

    /// Whether the last [`TURNS`] turns were for one client alone.
    pub fn is_sole(&self) -> bool {
        self.turns >= TURNS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_alone_for_many_turns_is_sole_until_a_second_comes() {
        let mut sole_client = SoleClient::default();
        for _ in 0..=TURNS {
            assert!(!sole_client.is_sole());
            sole_client.after_turn(&[7]);
            sole_client.after_turn(&[]);
        }
        assert!(sole_client.is_sole());
        sole_client.after_turn(&[7, 8]);
        assert!(!sole_client.is_sole());
        (0..TURNS).for_each(|_| sole_client.after_turn(&[7]));
        assert!(sole_client.is_sole());
        sole_client.after_turn(&[8]);
        assert!(!sole_client.is_sole());
    }
}
