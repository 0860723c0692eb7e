//! Which metadata contexts a client means.

use super::contexts::{BitmapName, ContextId, Contexts};
use super::options::{Queries, Query};

/// The contexts that a client selects: wildcards select none.
pub(super) fn selected(queries: Queries<'_>, bitmaps: &[BitmapName]) -> Contexts {
    queries.fold(Contexts::NONE, |contexts, query| {
        let id = match query {
            Query::BaseAllocation => Some(ContextId::BASE_ALLOCATION),
            Query::Bitmap(name) => {
                let index = bitmaps.iter().position(|bitmap| bitmap.as_str() == name);
                index.and_then(ContextId::of_bitmap)
            }
            Query::Base | Query::Bitmaps | Query::Unknown => None,
        };
        id.map_or(contexts, |id| contexts.with(id))
    })
}

/// The contexts that a client is shown: without a query, all.
pub(super) fn listed(queries: Queries<'_>, bitmaps: &[BitmapName]) -> Contexts {
    let all_bitmaps = |contexts: Contexts| {
        (0..bitmaps.len()).filter_map(ContextId::of_bitmap).fold(contexts, Contexts::with)
    };
    if queries.is_empty() {
        return all_bitmaps(Contexts::BASE_ALLOCATION);
    }
    queries.fold(selected(queries, bitmaps), |contexts, query| match query {
        Query::Base => contexts.with(ContextId::BASE_ALLOCATION),
        Query::Bitmaps => all_bitmaps(contexts),
        Query::BaseAllocation | Query::Bitmap(_) | Query::Unknown => contexts,
    })
}
