//! Findings of a review that are mended stay so.

use headgate_campaign::experiments;
use headgate_campaign::setup::Suspect;

/// While a request of 64 MiB occupies the storage a reservation falls behind. That it is made good
/// for at once takes nothing from the neighbour's share.
#[test]
fn shares_hold_between_small_reserved_requests_and_large_ones() {
    for row in experiments::small_requests(Suspect::default()).unwrap() {
        let error = (row.got / row.due - 1.0).abs();
        assert!(error < 0.01, "{}: {:.1} of {:.1}", row.what, row.got, row.due);
    }
}
