//! The scheduler of a tree against its definition (`docs/tree.md`), in simulated time and through
//! its public interface.

mod bounds;
mod brute;
mod grouped;
mod oracle;
mod random;
mod tenants;
mod world;
