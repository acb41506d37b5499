//! Claims in pieces, and queues that are looked at together.

use tidegate_backend::{Handout, QueueStore, Want};
use tidegate_conformance::servers::Redis;
use tidegate_core::Millis;
use tidegate_core::queue::{Condition, Due, QueueName, Schedule, TaskId};

use super::contract::open_on;

const FAR: Due = Due::In(86_400_000);

fn task(id: &str, due: Due) -> Schedule {
    let payload = vec![7; 64].into();
    Schedule { id: TaskId::parse(id).unwrap(), due, payload, condition: Condition::Absent }
}

fn wants(queues: &[QueueName], max: usize) -> Vec<Want> {
    queues.iter().map(|queue| Want { queue: queue.clone(), max, lease_ms: 60_000 }).collect()
}

fn tasks(handouts: &[Handout]) -> usize {
    handouts.iter().map(|handout| handout.tasks.len()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_quiet_queues_cost_two_commands_and_whoever_has_something_gives_it() {
    let redis = Redis::start();
    let (ours, others) = (open_on(&redis.url(), "looks").await, open_on(&redis.url(), "looks").await);
    let names: Vec<QueueName> = (0..300).map(|n| QueueName::parse(&format!("quiet.{n}")).unwrap()).collect();
    // Every second one is empty.
    for name in names.iter().step_by(2) {
        ours.schedule(name, &[task("far", FAR)]).await.unwrap();
    }
    let sent = || ours.connector().commands_sent();
    let wants = wants(&names, 5);
    let (before, first) = (sent(), ours.claim(&wants).await.unwrap());
    assert_eq!((sent() - before, tasks(&first)), (300, 0), "nobody knew them");
    let before = sent();
    for _ in 0..3 {
        assert_eq!(ours.claim(&wants).await.unwrap(), first);
    }
    assert_eq!(sent() - before, 6, "two commands each time");
    // One that was empty and one that was not: another process schedules, and says nothing to this one.
    for name in [&names[7], &names[280]] {
        others.schedule(name, &[task("due", Due::At(Millis(1)))]).await.unwrap();
    }
    let (before, found) = (sent(), ours.claim(&wants).await.unwrap());
    assert_eq!(sent() - before, 4, "two looks, two claims");
    assert_eq!((tasks(&found), found[7].tasks.len(), found[280].tasks.len()), (2, 1, 1));
    // What is leased is quiet again until its lease ends.
    assert!(found[7].next_at.is_some_and(|at| at > ours.now()), "{:?}", found[7]);
    let before = sent();
    assert_eq!((tasks(&ours.claim(&wants).await.unwrap()), sent() - before), (0, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_in_pieces_gives_what_one_script_would() {
    let redis = Redis::start();
    let ours = open_on(&redis.url(), "pieces").await;
    let name = QueueName::parse("pile").unwrap();
    for from in [0, 500] {
        let some: Vec<Schedule> =
            (from..from + 500).map(|n| task(&format!("t{n:04}"), Due::At(Millis(n + 1)))).collect();
        ours.schedule(&name, &some).await.unwrap();
    }
    let id = |n: usize| TaskId::parse(&format!("t{n:04}")).unwrap();
    let handout = ours.claim(&wants(std::slice::from_ref(&name), 512)).await.unwrap().remove(0);
    let ids: Vec<TaskId> = handout.tasks.iter().map(|task| task.id.clone()).collect();
    // The earliest, and an eighth of the newest.
    let want: Vec<TaskId> = (0..448).chain((936..1_000).rev()).map(id).collect();
    assert_eq!(ids, want);
    assert!(handout.tasks.windows(2).all(|two| two[0].receipt < two[1].receipt), "receipts grow");
    assert_eq!(handout.next_at, Some(Millis(449)));
    let rest = ours.claim(&wants(&[name], 512)).await.unwrap().remove(0);
    let ids: Vec<TaskId> = rest.tasks.iter().map(|task| task.id.clone()).collect();
    assert_eq!(ids, (448..936).map(id).collect::<Vec<_>>(), "all that is left, in order");
}
