//! What the HTTP API speaks.

pub mod types;
