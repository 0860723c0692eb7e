//! The machine against a model that knows what a disk is, and none of the machine's rules.
//!
//! | part | what it says |
//! |---|---|
//! | `storage` | what a storage may do: any order, any failure, any loss of what is not durable |
//! | `guest` | what a guest may see of one disk, and find after a crash |
//! | `world` | the machine between its neighbours; what may happen next, and what must hold |
//! | `search` | everything that may happen, each state once, and from each a way to the end |
//! | `cases` | small disks, exhaustively |
//! | `random` | larger ones, at random |
//!
//! A crash is no event: at each state it is asked what one would leave, on the side that the
//! journal then names. `cargo test -p headgate-mirror --test model -- --nocapture` prints the
//! number of states, and `HEADGATE_SEARCH=large` tries more.

mod cases;
mod guest;
mod random;
mod search;
mod storage;
mod world;
