//! The copy as of one instant against a model that knows what was promised, and no rule of the
//! machine.
//!
//! | part | what it says |
//! |---|---|
//! | `storage`, `guest`, `search` | as in the model of moves, whose files these are |
//! | `machine` | what is judged: the real one, or one that stands in for it |
//! | `world` | a machine between two storages and a guest; what may happen, and what must hold |
//! | `simple`, `defect` | a machine that is easy to believe, and wrong ones made of it |
//! | `proof` | the simple machine passes, and each wrong one is found |
//! | `cases` | small disks, exhaustively |
//! | `random` | larger ones, at random |
//!
//! A crash is no event: each state from the end of the copy on is asked what one would leave.
//! `cargo test -p headgate-mirror --test instant_model -- --nocapture` prints the number of
//! states, and `HEADGATE_SEARCH=large` tries more.

mod cases;
mod defect;
// Shared with the model of moves, which asks more of them.
#[allow(dead_code)]
#[path = "../model/guest.rs"]
mod guest;
mod machine;
mod proof;
mod random;
#[path = "../model/search.rs"]
mod search;
mod simple;
#[allow(dead_code)]
#[path = "../model/storage.rs"]
mod storage;
mod world;
