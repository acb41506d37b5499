//! What a handle does without a worker.

use std::time::Duration;

use tidegate::core::Millis;
use tidegate::queue::{Condition, Listing, NewTask, QueueError, TaskState};

use super::common::{in_memory, mail};

#[tokio::test]
async fn a_task_is_scheduled_moved_looked_at_and_cancelled() {
    let queues = in_memory();
    let mail = mail(&queues);
    assert!(mail.stats().await.unwrap().is_none());
    let at = queues.now().plus(3_600_000);
    let first = mail.schedule(NewTask::at("m1", at, "hello".to_owned())).await.unwrap();
    assert!(first.new && first.scheduled);
    let again = mail.schedule(NewTask::at("m1", at.plus(1), "other".to_owned())).await.unwrap();
    assert!(!again.scheduled, "it is there");
    let there = mail.get("m1").await.unwrap().unwrap();
    assert_eq!((there.payload.as_str(), there.task.due_at, there.task.state), ("hello", at, TaskState::Pending));
    let moved = mail.reschedule(NewTask::after("m1", Duration::from_secs(60), "later".to_owned())).await.unwrap();
    assert!((moved.task.due_at.since(queues.now()) - 60_000).abs() < 1_000);
    let sooner = NewTask::at("m1", Millis(1), "past".to_owned()).when(Condition::Earlier);
    assert!(mail.schedule(sooner).await.unwrap().scheduled);
    assert_eq!(mail.stats().await.unwrap().unwrap().due, 1);
    let (page, next) = mail.list(Listing::Live(None), None, 10).await.unwrap();
    assert_eq!((page.len(), next), (1, None));
    assert!(mail.cancel("m1").await.unwrap() && !mail.cancel("m1").await.unwrap());
    assert!(mail.get("m1").await.unwrap().is_none());
}

#[tokio::test]
async fn bad_input_is_refused_and_says_why() {
    let queues = in_memory();
    let refused = queues.queue::<()>("Bad Name").unwrap_err();
    assert!(refused.to_string().contains("a-z 0-9"), "{refused}");
    let refused = queues.queue::<()>("orders").unwrap_err();
    assert!(matches!(refused, QueueError::Reserved(_)), "{refused}");
    let mail = mail(&queues);
    let long = "x".repeat(70_000);
    let refused = mail.schedule(NewTask::at("m1", Millis(1), long)).await.unwrap_err();
    assert!(refused.to_string().contains("at most 65536"), "{refused}");
    let refused = mail.schedule(NewTask::at("", Millis(1), String::new())).await.unwrap_err();
    assert!(matches!(refused, QueueError::Id(_)), "{refused}");
    let refused = mail.schedule(NewTask::at("m1", Millis(i64::MAX), String::new())).await.unwrap_err();
    assert!(refused.to_string().contains("years 1 to 9999"), "{refused}");
    let refused = mail.schedule(NewTask::after("m1", Duration::MAX, String::new())).await.unwrap_err();
    assert!(matches!(refused, QueueError::Task(_)), "{refused}");
    let many = vec![NewTask::at("m1", Millis(1), String::new()); 513];
    assert!(matches!(mail.schedule_all(&many).await.unwrap_err(), QueueError::Batch(513)));
    assert!(mail.stats().await.unwrap().is_none(), "nothing was scheduled");
    for n in 0..10 {
        let queue = queues.queue::<u8>(&format!("q{n}")).unwrap();
        queue.schedule(NewTask::at("1", Millis(1), 1)).await.unwrap();
    }
    let refused = mail.schedule(NewTask::at("m1", Millis(1), String::new())).await.unwrap_err();
    assert!(refused.to_string().contains("10 queues"), "{refused}");
}
