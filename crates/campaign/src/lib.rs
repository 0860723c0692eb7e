//! A campaign that judges the scheduler from outside.
//!
//! Random set-ups of disks are run through [`Gate`](headgate_qos::Gate), which the daemon and the
//! simulator drive too, on storage that behaves like storage: service times vary, it stands still,
//! its rate swings. What each disk got is compared with an [oracle] written from the
//! definition of reservation, limit and shares, by somebody who has not read the scheduler.
//!
//! | module | what it is |
//! |---|---|
//! | [`setup`] | what runs: disks, loads, storage, phases |
//! | [`class`] | families of set-ups, each drawn from a seed |
//! | [`mod@run`] | the event loop, in virtual time |
//! | [`record`] | what happened, by second |
//! | [`oracle`] | what each disk is due |
//! | [`judge`] | the difference, over settled spans |
//! | [`bars`] | the most that the difference may be, and where it is more today |
//! | [`mod@campaign`] | many set-ups on all cores |
//! | [`experiments`] | findings of a review, each as a small experiment |
//! | [`latency`] | what requests of reserved disks take beside a neighbour, and alone |
//! | [`targets`] | whether latency targets are kept that could be |
//! | [`report`] | tables |
//!
//! `docs/campaign.md` says how to run it and what came out.

pub mod bars;
pub mod campaign;
pub mod class;
pub mod draw;
pub mod experiments;
pub mod judge;
pub mod latency;
pub mod oracle;
pub mod record;
pub mod report;
pub mod rng;
pub mod run;
pub mod setup;
pub mod storage;
pub mod tally;
pub mod targets;
pub mod thinking;
