//! Scenario files: the keys that they may have, and what those mean. The same types read a file and
//! make the JSON schema for editors, which [`SCHEMA`](crate::SCHEMA) keeps.

mod event;
mod expect;
mod keys;
mod machines;
mod names;
mod policy;
mod pool;
mod read;
mod schema;
mod sensitivity;
mod setup;
mod storage;
mod subjects;
mod text;
mod variants;
mod vm;
mod window;
mod workload;

pub use read::ScenarioError;
#[cfg(feature = "schema")]
pub use schema::schema;
