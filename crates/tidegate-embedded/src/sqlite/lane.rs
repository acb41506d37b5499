//! Threads that own connections. A call is a closure that is sent to one and answered once.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tidegate_backend::{Error, ErrorKind, Result};
use tokio::sync::{Semaphore, oneshot};

use super::fault;

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

struct Shared<S> {
    queue: Mutex<Queue<S>>,
    wake: Condvar,
}

struct Queue<S> {
    jobs: VecDeque<Job<S>>,
    closed: bool,
}

impl<S> Shared<S> {
    fn lock(&self) -> MutexGuard<'_, Queue<S>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job; `None` once the lane is closed and empty. Sleeps without waking while there is none.
    fn next(&self) -> Option<Job<S>> {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// One or more threads, each with a state of its own, that serve one bounded queue in order of arrival.
pub(super) struct Lane<S> {
    shared: Arc<Shared<S>>,
    permits: Arc<Semaphore>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<S: Send + 'static> Lane<S> {
    /// Starts a thread for each of `states`. At most `bound` calls wait in the queue; more wait for their turn to.
    pub(super) fn start(name: &str, states: Vec<S>, bound: usize) -> Result<Self> {
        let queue = Mutex::new(Queue { jobs: VecDeque::with_capacity(bound), closed: false });
        let shared = Arc::new(Shared { queue, wake: Condvar::new() });
        let lane = Self { shared, permits: Arc::new(Semaphore::new(bound)), threads: Mutex::default() };
        for mut state in states {
            let shared = lane.shared.clone();
            let serve = move || {
                while let Some(job) = shared.next() {
                    job(&mut state);
                }
            };
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(serve).map_err(|e| {
                Error::new(ErrorKind::Unavailable, "a thread of the ledger could not be started").because(e)
            })?;
            lane.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(lane)
    }

    /// Runs `call` on one of the threads. It runs to its end even when nobody waits for the answer any more.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut S) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| fault::closed())?;
        let (answer, answered) = oneshot::channel();
        self.push(Box::new(move |state| {
            let result = caught(|| call(state));
            // Given back first: whoever has the answer may send the next call at once.
            drop(permit);
            let _ = answer.send(result);
        }))?;
        answered.await.unwrap_or_else(|_| Err(fault::closed()))
    }

    /// The same for a thread that may block, outside the bound: only the ledger's own upkeep calls it.
    pub(super) fn run_blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut S) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        self.push(Box::new(move |state| {
            let _ = answer.send(caught(|| call(state)));
        }))?;
        answered.recv().unwrap_or_else(|_| Err(fault::closed()))
    }

    /// Runs `call` on one of the threads, outside the bound, without waiting for it.
    pub(super) fn send(&self, call: impl FnOnce(&mut S) + Send + 'static) -> Result<()> {
        self.push(Box::new(move |state| {
            let _ = caught(|| {
                call(state);
                Ok(())
            });
        }))
    }

    fn push(&self, job: Job<S>) -> Result<()> {
        let mut queue = self.shared.lock();
        if queue.closed {
            return Err(fault::closed());
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Takes no more calls, lets the threads finish what is queued, and waits for them (this blocks).
    pub(super) fn close(&self) {
        self.permits.close();
        self.shared.lock().closed = true;
        self.shared.wake.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // Jobs catch their own panics, so a thread ends only here.
            let _ = thread.join();
        }
    }
}

impl<S> Drop for Lane<S> {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner)) {
            let _ = thread.join();
        }
    }
}

/// A panic ends one call, not the thread: an open transaction is rolled back while it unwinds.
fn caught<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Error::new(ErrorKind::Command, format!("a panic in the ledger; nothing of this call was written: {text}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_one_call_only() {
        let lane = Lane::start("test", vec![0_i32], 4).unwrap();
        let error = lane.run(|_| -> Result<()> { panic!("by {}", "design") }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Command);
        assert!(error.to_string().contains("by design"), "{error}");
        let value = lane
            .run(|n| {
                *n += 1;
                Ok(*n)
            })
            .await
            .unwrap();
        assert_eq!((value, lane.run_blocking(|n| Ok(*n)).unwrap()), (1, 1));
        lane.close();
        assert_eq!(lane.run(|_| Ok(())).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(lane.run_blocking(|_| Ok(())).is_err());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn more_calls_than_the_bound_all_get_their_turn() {
        let lane = Arc::new(Lane::start("test", vec![(), ()], 2).unwrap());
        let calls: Vec<_> = (0..100)
            .map(|i| {
                let lane = lane.clone();
                tokio::spawn(async move { lane.run(move |()| Ok(i)).await })
            })
            .collect();
        for (i, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await.unwrap().unwrap(), i);
        }
    }
}
