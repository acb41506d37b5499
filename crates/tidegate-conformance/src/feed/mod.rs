//! The feed: the cases of its ledgers.
//!
//! - [`double`]: a ledger and a store in memory, for tests of what is built on them.
//! - [`ledgers`]: the cases a [`tidegate_backend::FeedLedger`] passes; [`crate::feed_ledger_conformance!`] makes a test of each.
//! - [`stores`]: the cases a [`tidegate_backend::FeedStore`] passes; [`crate::feed_store_conformance!`] makes a test of each.

pub mod double;
pub mod ledgers;
pub mod stores;

/// One `#[tokio::test]` for every case of [`ledgers`]. `$open` is an async function
/// `fn(usize) -> (Arc<dyn FeedLedger>, Arc<dyn Ledger>, impl Any)` that opens a fresh, empty ledger with a manual clock, in
/// which each user may follow so many; the last value is kept alive while the case runs.
#[macro_export]
macro_rules! feed_ledger_conformance {
    ($open:path) => {
        $crate::feed_ledger_conformance!($open;
            a_post_is_published_once, f4_posts_stand_at_their_time, names_of_users_and_posts_are_bytes,
            follows_have_a_limit_and_page, blocks_hide_both, batches_are_large_and_bounded,
            long_sets_are_cut_and_read_deep, random_batches_agree_with_the_table,
            an_id_published_at_once_is_one_post, the_limit_of_follows_holds_at_once,
            no_change_of_eight_writers_is_lost, reads_are_of_one_moment, a_user_is_deleted_in_parts,
            who_comes_back_meanwhile_lives_on, every_change_is_in_the_outbox);
    };
    ($open:path; $($case:ident),+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::feed::ledgers::$case(&|max_followees| Box::pin(async move {
                    let (feed, ledger, kept) = $open(max_followees).await;
                    $crate::feed::ledgers::Opened { feed, ledger, kept: Box::new(kept) }
                })).await;
            }
        )+
    };
}
