//! What the mClock paper's evaluation shows, in simulated time.
mod common;

use common::*;

#[test]
fn the_rd_oltp_dm_example_at_every_capacity() {
    for (capacity, expected) in [
        // The floor: one IO in 100 goes by shares.
        (500, [248, 248, 5]),
        (700, [250, 250, 200]),
        (875, [250, 250, 375]),
        (1200, [250, 380, 570]),
        (1500, [250, 500, 750]),
        (2000, [333, 667, 1000]),
        (2500, [500, 1000, 1000]),
        (3000, [667, 1333, 1000]),
    ] {
        let mut bench = Bench::mclock(capacity);
        for (shares, reservation, limit) in [(100, 250, 0), (200, 250, 0), (300, 0, 1000)] {
            bench.busy(policy(shares, reservation, limit));
        }
        bench.run(secs(2));
        let got = bench.rates(20);
        assert_rates(&got, &expected, 1);
    }
}
