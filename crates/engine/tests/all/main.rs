//! What the engine does with requests, disks, moves and copies, through the crate's public
//! interface. One program for all of it: built once, and its tests run beside each other. `cargo
//! test -p headgate-engine --test all moves::` runs a part. What depends on who has the CPU has
//! programs of its own (`allocation`, `polling`), and so has what counts allocations (`heap`).

mod changes;
mod chaos;
mod connections;
mod copies;
mod crossing;
mod data_path;
mod flash;
mod layers;
mod losses;
mod moves;
mod remote;
mod resize;
mod settled;
mod stalls;
mod statuses;
mod still;
mod stripes;
mod support;
mod terms;
