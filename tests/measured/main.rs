//! End-to-end tests of how much is done: relations between rates, on real guests and clients. They
//! run one after the other, each under its premises (`headgate_lab::premise`).

mod counters;
mod directions;
mod flash;
mod floods;
mod forged;
mod guarantees;
mod half_open;
mod latency_targets;
mod layers;
mod limits;
mod live_policy;
mod moves;
mod neighbour;
mod placement;
mod priorities;
mod remote;
mod resets;
mod shallow;
mod simulator;
mod stores;
mod stripes;
mod tenants;
mod varying;
mod windows;
