//! Verdicts on latency targets beside what the scheduler and the gate do on storage that varies.

mod bench;
mod dice;
mod draw;
mod impossible;
mod kept;
mod properties;
mod reasons;
mod storage;
