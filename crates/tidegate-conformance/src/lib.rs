//! The contract every back end passes: named cases, a seeded workload, the auditor.
//!
//! - [`oracle`]: the engine over plain maps; what a ledger must agree with.
//! - [`workload`]: random commands from seeded (or shrinkable) entropy.
//! - [`faulty`]: a ledger that fails on demand.
//! - `servers` (feature `servers`): private database servers for tests.
//! - [`cache`]: the cases a [`tidegate_backend::CacheStore`] passes; [`cache_store_conformance!`] makes a test of each.
//! - [`deadlines`]: the cases a [`tidegate_backend::DeadlineQueue`] passes; [`deadline_conformance!`] makes a test of each.
//! - [`feed`]: the same of the feed's ledgers.
//! - [`membership`]: the cases a [`tidegate_backend::MembershipStore`] passes; [`membership_conformance!`] makes a test of each.
//! - [`lock`]: the cases a [`tidegate_backend::LockStore`] passes; [`lock_conformance!`] makes a test of each.
//! - [`queue`]: the cases a [`tidegate_backend::QueueStore`] passes; [`queue_conformance!`] makes a test of each.
//! - [`ledger`]: the cases a [`tidegate_backend::Ledger`] passes; [`ledger_conformance!`] makes a test of each.

pub mod cache;
pub mod deadlines;
pub mod faulty;
pub mod feed;
pub mod ledger;
pub mod lock;
pub mod membership;
pub mod oracle;
pub mod queue;
#[cfg(feature = "servers")]
pub mod servers;
pub mod twin;
pub mod workload;

pub use faulty::Faulty;
pub use oracle::Oracle;
pub use workload::Workload;

/// One `#[tokio::test]` for every case of [`ledger`]. `$open` is an async function
/// `fn(Settings) -> (Arc<dyn Ledger>, impl ledger::Caller, impl Any)` that opens a fresh, empty ledger with a manual clock; the
/// last value is kept alive while the case runs.
#[macro_export]
macro_rules! ledger_conformance {
    ($open:path) => {
        $crate::ledger_conformance!($open;
            order_round_trips, one_hot_sku_fills_a_batch, batch_mates_do_not_spoil_each_other,
            aliases_hold_across_batches, unmatched_money_waits_for_its_order, a_tombstone_sends_money_back,
            supersede_is_one_commit, a_limit_counts_what_there_is, money_lists_filter_and_page,
            order_lists_filter_and_page, sku_lists_page, the_stock_ledger_pages_oldest_first,
            events_are_dense_and_page, probes_know_orders_keys_and_stock,
            deadlines_come_earliest_first_without_the_parked, stale_money_is_flagged_once,
            pruning_is_bounded_and_complete, a_foreign_cursor_is_refused, ids_are_bytes,
            adjustments_repeat_for_a_week, contradicting_rows_fail_alone, long_orders_are_ended_in_small_batches,
            concurrent_commits_are_sound_and_no_reader_misses_one, one_id_placed_at_once_is_one_order,
            the_last_units_go_to_as_many_as_there_are, money_told_at_once_counts_once,
            a_changed_card_makes_its_page_old, what_a_batch_refuses_makes_nothing_old, relays_share_the_work,
            a_relay_that_dies_loses_nothing, what_does_not_arrive_comes_again,
            what_was_delivered_is_kept_for_a_replay, a_callers_own_transaction_counts_once_it_commits,
            it_closes_while_batches_come_in, it_has_a_number_of_its_own,
            random_batches_agree_with_the_oracle, random_batches_with_grace_agree_with_the_oracle);
    };
    ($open:path; $($case:ident),+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::ledger::$case(&|settings| Box::pin(async move {
                    let (ledger, caller, kept) = $open(settings).await;
                    $crate::ledger::Opened { ledger, caller: Box::new(caller), kept: Box::new(kept) }
                })).await;
            }
        )+
    };
}

/// One `#[tokio::test]` for every case of [`deadlines`]. `$open` is an async function
/// `fn() -> (Arc<dyn DeadlineQueue>, impl Any)` that opens a fresh, empty queue; the second value is kept alive while the
/// case runs.
#[macro_export]
macro_rules! deadline_conformance {
    ($open:path) => {
        $crate::deadline_conformance!($open;
            claims_come_earliest_first_with_a_share_of_the_newest, ties_go_by_number, nothing_is_early,
            a_lease_runs_out_and_its_receipt_dies_with_the_next_claim,
            a_late_acknowledgement_counts_while_nobody_else_has_claimed, retry_counts_only_charged_tries,
            the_same_deadline_again_changes_nothing, a_schedule_during_a_lease_outlives_its_acknowledgement,
            what_waits_inside_a_lease_is_not_lost, the_earliest_of_several_instants_counts,
            a_moved_deadline_is_neither_early_nor_lost, cancel_ends_a_lease,
            contains_knows_what_waits_and_what_is_leased, numbers_are_true, earlier_is_never_missed,
            fifty_thousand_due_at_once,
            extreme_instants_are_kept, it_is_incomplete_until_it_was_rebuilt, close_hands_back,
            random_runs_agree_with_the_model);
    };
    ($open:path; $($case:ident),+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::deadlines::$case(&|| Box::pin(async {
                    let (queue, kept) = $open().await;
                    $crate::deadlines::Opened { queue, kept: Box::new(kept) }
                })).await;
            }
        )+
    };
}

/// One `#[tokio::test]` for every case of [`membership`]. `$open` is an async function `fn() -> impl membership::Harness`
/// that opens a fresh, empty store.
#[macro_export]
macro_rules! membership_conformance {
    ($open:path) => {
        $crate::membership_conformance!($open;
            a_generation_is_made_filled_and_found, bits_and_whole_buckets_agree, nothing_is_done_under_another_state,
            what_is_lost_stays_lost, what_was_discarded_is_lost, one_of_many_replaces_a_state, one_leads_until_it_ends,
            a_builder_replaces_only_while_it_leads, namespaces_are_apart, additions_are_counted_once,
            many_at_once_and_no_more);
    };
    ($open:path; $($case:ident),+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::membership::$case(&|| Box::pin(async {
                    Box::new($open().await) as Box<dyn $crate::membership::Harness>
                })).await;
            }
        )+
    };
}

/// One `#[tokio::test]` for every case of [`cache`]. `$open` is an async function `fn() -> impl cache::Harness` that opens
/// a fresh, empty store.
#[macro_export]
macro_rules! cache_store_conformance {
    ($open:path) => {
        $crate::cache_store_conformance!($open;
            one_lease_at_a_time, everything_ends_by_itself, a_renewed_lease_outlives_its_first_life,
            an_invalidation_revokes_every_schema, schemas_have_entries_of_their_own, a_floor_refuses_what_is_older,
            a_refresh_never_goes_back, failures_are_shared_and_counted, a_put_needs_to_be_newer,
            a_lease_goes_to_one_of_many, whoever_waits_is_woken, what_is_told_is_heard, what_was_missed_is_said,
            silence_is_bounded_and_honest, it_closes, a_thousand_at_once_are_answered_in_order,
            large_values_come_back_whole, keys_are_any_bytes, touched_keys_say_whether_they_are_there, a_clear_leaves_other_namespaces,
            counters_of_tags_never_repeat, a_forgotten_counter_starts_anew, bumps_at_once_are_distinct,
            foreign_bytes_are_nobodys, a_foreign_delete_revokes, clocks_agree, random_operations_agree_with_the_cell);
    };
    ($open:path; $($case:ident),+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::cache::$case(&|| Box::pin(async {
                    Box::new($open().await) as Box<dyn $crate::cache::Harness>
                })).await;
            }
        )+
    };
}

/// One `#[tokio::test]` for every case of [`queue`]. `$open` is an async function `fn() -> impl queue::Harness` that opens
/// a fresh, empty store.
#[macro_export]
macro_rules! queue_conformance {
    ($open:path) => {
        $crate::queue_conformance!($open;
            a_task_is_there_as_it_was_scheduled, conditions_decide_by_the_instant,
            instants_are_kept_to_the_millisecond, cancel_takes_a_task_in_any_state, ids_and_payloads_are_bytes,
            queues_are_strangers, lists_page, numbers_are_true, earlier_is_never_missed, it_closes,
            claims_come_in_order_and_never_early, a_receipt_counts_until_another_has_the_task,
            a_change_revokes_a_receipt, a_release_is_not_charged, retries_wait_and_end, a_crash_loop_ends,
            the_dead_wait_for_a_person, verdicts_of_a_batch_are_each_their_own, processes_share_a_queue,
            a_pile_does_not_hold_up_the_newest, fifty_thousand_due_at_once, whoever_races_has_tasks_of_its_own,
            a_claim_carries_a_bounded_payload, a_killer_dies_alone, one_claim_asks_many_queues,
            random_operations_agree_with_the_model);
    };
    ($open:path; $($case:ident),+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::queue::$case(&|| Box::pin(async {
                    Box::new($open().await) as Box<dyn $crate::queue::Harness>
                })).await;
            }
        )+
    };
}

/// One `#[tokio::test]` for every case of [`lock`]. `$open` is an async function `fn() -> impl lock::Harness` that opens a
/// fresh, empty store.
#[macro_export]
macro_rules! lock_conformance {
    ($open:path) => {
        $crate::lock_conformance!($open;
            one_holder_at_a_time, asking_again_is_the_same_request, a_floor_lifts_the_fence, a_lock_ends_by_itself,
            renewals_are_each_their_own, a_look_shows_the_holder, names_are_bytes,
            fences_survive_the_loss_of_the_store, the_line_is_served_in_order, whoever_leaves_holds_up_nobody,
            the_dead_are_skipped, a_waiter_that_does_not_answer_loses_its_turn,
            a_lock_that_ran_out_goes_to_the_line, a_waiter_is_granted_above_its_floor,
            a_call_that_ends_untold_takes_nothing_from_its_repeat, a_release_by_the_token_is_unconditional,
            who_is_done_takes_its_earlier_calls_with_it, a_renewal_by_the_token_alone_is_an_answer,
            many_calls_with_one_token_are_bounded, a_repeat_of_a_waiter_waits_where_it_is,
            what_is_handed_over_stays_with_the_call_that_remains, fences_stay_below_two_to_the_53, locks_close,
            random_operations_agree_with_the_lock);
    };
    ($open:path; $($case:ident),+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::lock::$case(&|| Box::pin(async {
                    Box::new($open().await) as Box<dyn $crate::lock::Harness>
                })).await;
            }
        )+
    };
}
