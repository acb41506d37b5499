//! Bad days of the delay queue, with real processes and real servers. The cases are those of public reports
//! (`cases/deadlines.md`); what the contract of stores (`tidegate_conformance::queue`) or another test shows is named here, too.
//!
//! | case | shown by |
//! | --- | --- |
//! | C1 early by a part of a second | `crowds::ten_thousand_at_random_instants_are_never_early` |
//! | C2 an idle queue is late | `crowds::an_idle_queue_is_on_time` |
//! | C6 a pile in one second, a trickle beside it | `crowds::a_pile_in_one_second_does_not_hold_up_a_trickle` |
//! | C9 delays that overflow | `crowds::a_delay_of_years_does_not_fire`, contract `instants_are_kept_to_the_millisecond` |
//! | C11 random operations against a model | contract `random_runs_agree_with_the_model` |
//! | C12 ten thousand in one millisecond, the year 2045 | `crowds::ten_thousand_in_one_millisecond_come_by_id`, contract `instants_are_kept_to_the_millisecond` |
//! | C14 subscriptions die | `servers::without_its_subscription_all_fires_in_time` |
//! | C16 a restart, a silent network, a new master | `servers::consuming_goes_on_after_..` (three) |
//! | C17 one wake-up for many workers | `crowds::ten_idle_workers_share_what_is_due_at_once` |
//! | C19 kill -9 between claim and acknowledgement | `kills::workers_killed_at_any_moment_lose_nothing`, `kills::orphans_come_again_within_one_lease` |
//! | C21 what is moved while it is handed out | `cancelled::moves_and_claims_race_and_the_count_is_kept`, contract `whoever_races_has_tasks_of_its_own` |
//! | C22 the reply of a claim is lost | `servers::lost_replies_cost_a_lease_and_no_task` |
//! | C24 a restart under the same name | `kills::workers_killed_at_any_moment_lose_nothing` (each is started again at once) |
//! | C26 due while everything was down | `servers::what_fell_due_while_all_was_down_fires_at_once`, `kills::a_file_survives_its_process` |
//! | C27 the store is wiped | `servers::a_wiped_store_is_noticed_and_filled_again` |
//! | C29 a lagging replica becomes the master | `servers::a_lagging_replica_hands_out_again_under_newer_receipts` |
//! | C31 clocks are stepped | `clocks::the_servers_clock_is_stepped`, `clocks::a_workers_clock_is_stepped` |
//! | C36 a worker is frozen past its lease | `kills::a_frozen_worker_has_lost_what_it_held` |
//! | C37 scaling up and down | `kills::scaling_up_and_down_redelivers_nothing` |
//! | C39 clocks are 50 ms apart | `clocks::workers_whose_clocks_differ_run_each_slot_once` |
//! | C42 a task kills its process; a stop | `kills::a_task_that_kills_its_process_dies_alone`, `kills::a_stop_charges_no_attempt` |
//! | C44 far tasks in a worker's memory | `crowds::far_tasks_cost_a_worker_no_memory` |
//! | C46 the cost of an acknowledgement | `crowds::an_acknowledgement_costs_the_same_with_ten_thousand_in_flight` |
//! | C47 fifty thousand due at once | contract `fifty_thousand_due_at_once` |
//! | C49 a Cluster | the contract on a Cluster, lint `commands_are_literal_and_keys_come_from_keys` |
//! | C51 eviction | `servers::a_server_that_may_evict_is_refused_and_no_key_expires` |
//! | C56 local time | `clocks::half_an_hour_is_half_an_hour_when_summer_time_ends`, over HTTP `local_times_are_refused` |
//!
//! - `process`, `child`: a process with a worker of its own, which is this very program. `common`: queues and what was run.
//! - `kills`: processes that die, freeze, stop. `servers`: Redis and the way to it. `clocks`: clocks that are wrong.
//! - `crowds`: many at once. `cancelled`: callers that go away, calls that race.
//!
//! `TIDEGATE_TEST_LONG=1` runs each in full.

#![expect(clippy::unwrap_used, reason = "a test may panic, also in its helpers")]

mod cancelled;
mod child;
mod clocks;
mod common;
mod crowds;
mod kills;
mod process;
mod servers;

/// Whether tests run in full.
fn long() -> bool {
    std::env::var_os("TIDEGATE_TEST_LONG").is_some()
}

/// `whole` with `TIDEGATE_TEST_LONG=1`, else `short`.
fn scaled(short: u64, whole: u64) -> u64 {
    if long() { whole } else { short }
}
