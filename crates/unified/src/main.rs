//! Nothing: a package has a program, and this one is only its features.

fn main() {}
