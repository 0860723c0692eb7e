//! The targets, one file each.

mod api;
mod board;
mod catalog;
mod fleet;
mod nbd_counters;
mod nbd_negotiation;
mod nbd_replies;
mod nbd_requests;
mod scenario;
mod stripe;
mod texts;
mod trace;
mod vhost_messages;
mod vring_chain;

use crate::Target;
use std::path::Path;

/// No seeds beside the kept inputs.
fn none() -> Vec<Vec<u8>> {
    Vec::new()
}

/// A directory that goes with the process, in memory where that is possible: targets that write
/// files measure nothing.
fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("there is room for files")
}

pub(crate) static ALL: &[Target] = &[
    Target {
        name: "api",
        about: "requests to the HTTP API of a whole daemon: methods, paths, JSON",
        longest: 4096,
        words: api::WORDS,
        seeds: api::seeds,
        run: api::run,
    },
    Target {
        name: "board",
        about: "blocks of a congestion board, and the window that follows from them",
        longest: 2048,
        words: &[],
        seeds: board::seeds,
        run: board::run,
    },
    Target {
        name: "catalog",
        about: "rows of the catalog, and damage to its file",
        longest: 512,
        words: &[],
        seeds: catalog::seeds,
        run: catalog::run,
    },
    Target {
        name: "fleet",
        about: "summaries of hosts in etcd, and the view of all hosts that follows",
        longest: 2048,
        words: &["HGFLEET1", "/host", "/disks-000"],
        seeds: fleet::seeds,
        run: fleet::run,
    },
    Target {
        name: "nbd_counters",
        about: "an NBD client that counts what its disk receives elsewhere",
        longest: 2048,
        words: &[],
        seeds: none,
        run: nbd_counters::run,
    },
    Target {
        name: "nbd_negotiation",
        about: "an NBD client's handshake",
        longest: 4096,
        words: &[
            "IHAVEOPT",
            "base:allocation",
            "qemu:dirty-bitmap:monday",
            "HG\0\x01\0\0\0\x02\0\x01",
        ],
        seeds: none,
        run: nbd_negotiation::run,
    },
    Target {
        name: "nbd_replies",
        about: "an NBD server's handshake and replies",
        longest: 4096,
        words: &[],
        seeds: none,
        run: nbd_replies::run,
    },
    Target {
        name: "nbd_requests",
        about: "an NBD client in transmission, and a disk that answers late or with errors",
        longest: 2048,
        words: &[],
        seeds: none,
        run: nbd_requests::run,
    },
    Target {
        name: "scenario",
        about: "scenario files, and the first steps of what they describe",
        longest: 8192,
        words: scenario::WORDS,
        seeds: scenario::seeds,
        run: scenario::run,
    },
    Target {
        name: "stripe",
        about: "labels of the exports of striped disks, and ranges of what they describe",
        longest: 8192,
        words: &["HEADGATE STRIPE\n"],
        seeds: stripe::seeds,
        run: stripe::run,
    },
    Target {
        name: "texts",
        about: "what operators write in one line: sizes, rates, models, layers, URIs, rules",
        longest: 512,
        words: texts::WORDS,
        seeds: texts::seeds,
        run: texts::run,
    },
    Target {
        name: "trace",
        about: "block traces of all formats",
        longest: 4096,
        words: &["Read", "Write", "1,2,3", "\n"],
        seeds: none,
        run: trace::run,
    },
    Target {
        name: "vhost_messages",
        about: "a front-end's messages with descriptors of any kind, and what lies in its memory",
        longest: 2048,
        words: &[],
        seeds: vhost_messages::seeds,
        run: vhost_messages::run,
    },
    Target {
        name: "vring_chain",
        about: "descriptor chains, completions, a device that dies and one that goes on",
        longest: 4096,
        words: &[],
        seeds: none,
        run: vring_chain::run,
    },
];
