//! The target that `HEADGATE_FUZZ_TARGET` names, under libFuzzer.

#![no_main]

use headgate_fuzz::Target;
use libfuzzer_sys::{Corpus, fuzz_target};
use std::sync::LazyLock;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("HEADGATE_FUZZ_TARGET").unwrap_or_default();
    headgate_fuzz::find(&name).unwrap_or_else(|unknown| {
        eprintln!("error: HEADGATE_FUZZ_TARGET: {unknown}");
        std::process::exit(2)
    })
});

fuzz_target!(|input: &[u8]| -> Corpus {
    TARGET.run(input);
    Corpus::Keep
});
