//! Summaries, publishers and views, from outside.

mod publishing;
mod viewing;
mod words;
