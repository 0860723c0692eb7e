//! The `headgate` command: what it prints, and the live view.
//!
//! ```text
//! command line --HTTP/JSON--> daemon --> control --> catalog (what is remembered)
//!                                           |------> images  (files, crash-safe)
//!                                           '------> data plane (engine, NBD, vhost-user-blk)
//! ```

pub mod cli;
mod offline;
mod top;
