//! PARDA against models of a shared array: the published experiments, stability, what goes wrong.

mod cluster;
mod events;
mod paper;
mod product;
mod stability;
mod work;
