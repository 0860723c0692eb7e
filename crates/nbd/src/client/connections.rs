//! How many connections a client keeps to one export.

use thiserror::Error;

/// How many connections a client keeps to one export, where the server says that a flush on one of
/// them covers the writes of all (`NBD_FLAG_CAN_MULTI_CONN`): 1 to 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connections(u8);

/// The most.
const MAX: u8 = 16;

impl Connections {
    /// One.
    pub const ONE: Connections = Connections(1);

    /// So many.
    ///
    /// # Errors
    /// [`NoConnections`] unless there are 1 to 16.
    pub fn new(number: u8) -> Result<Connections, NoConnections> {
        if (1..=MAX).contains(&number) {
            Ok(Connections(number))
        } else {
            Err(NoConnections(number))
        }
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl Default for Connections {
    fn default() -> Connections {
        Connections::ONE
    }
}

/// So many connections are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a disk cannot have {0} connections to a server: 1 to {MAX} were expected")]
pub struct NoConnections(pub u8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_one_to_sixteen() {
        for number in 0..=u8::MAX {
            let made = Connections::new(number);
            assert_eq!(made.is_ok(), number > 0 && number <= 16, "{number}");
            assert_eq!(made.map_or_else(|refused| refused.0, Connections::get), number);
        }
        assert_eq!(Connections::default().get(), 1);
    }
}
