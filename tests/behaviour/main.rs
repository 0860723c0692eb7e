//! End-to-end tests of what is done: data, protocols, crashes, hostile peers. They measure nothing
//! and run beside each other.

mod announced;
mod balance;
mod catalog;
mod clients;
mod confinement;
mod copies;
mod crashes;
mod fencing;
mod flash;
mod front_ends;
mod garbage;
mod guest;
mod hangs;
mod hostile;
mod hosts;
mod identity;
mod images;
mod images_in_trouble;
mod incremental;
mod layers;
mod many;
mod moves;
mod moves_in_trouble;
mod power;
mod probes;
mod remote;
mod reservations;
mod resize;
mod stalls;
mod stops;
mod stripe_leases;
mod stripes;
mod tls;
mod trouble;
mod unit;
