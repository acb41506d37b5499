//! The whole: a ledger, a gate, a deadline queue, and the workers between them.

use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::{DeadlineQueue, Gate, Ledger};
use tidegate_core::command::Place;
use tidegate_core::{Command, Outcome, Settings};
use tokio::sync::watch;

use crate::workers::group_commit::GroupCommit;
use crate::workers::probes::Probes;
use crate::workers::{Health, Tasks};
use crate::{Catalog, Error, Operations, Orders, Readiness, Result, workers};

/// The back ends an instance is made of.
pub struct Parts {
    /// The only arbiter.
    pub ledger: Arc<dyn Ledger>,
    /// Copies of what is available.
    pub gate: Arc<dyn Gate>,
    /// The index of what is due.
    pub deadlines: Arc<dyn DeadlineQueue>,
    /// The rules' settings; the ledger must have been opened with the same.
    pub settings: Settings,
}

/// How an instance runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Commands that may wait in front of the ledger; beyond it calls are refused as overloaded.
    pub queue_commands: usize,
    /// Whether this instance acts on deadlines (`serve --no-workers` does not).
    pub workers: bool,
    /// How long a claimed deadline belongs to its worker, milliseconds.
    pub lease_ms: i64,
}

impl Default for Options {
    fn default() -> Self {
        Self { queue_commands: 8_192, workers: true, lease_ms: 5_000 }
    }
}

/// An instance of Tidegate: a cheap handle, clone it freely.
#[derive(Clone)]
pub struct Tidegate(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) gate: Arc<dyn Gate>,
    pub(crate) deadlines: Arc<dyn DeadlineQueue>,
    pub(crate) settings: Settings,
    pub(crate) options: Options,
    pub(crate) queue: GroupCommit,
    pub(crate) probes: Probes,
    pub(crate) newest_event: watch::Sender<i64>,
    pub(crate) health: Health,
    tasks: Tasks,
}

impl Tidegate {
    /// Starts an instance: rebuilds the gate and the deadline index from the ledger, then starts the workers on the
    /// current tokio runtime. Keep it and end it with [`Tidegate::stop`].
    ///
    /// # Errors
    /// [`Error::LedgerUnavailable`] when the ledger cannot be read.
    pub async fn start(parts: Parts, options: Options) -> Result<Self> {
        let Parts { ledger, gate, deadlines, settings } = parts;
        let inner = Arc::new(Inner {
            queue: GroupCommit::new(options.queue_commands),
            probes: Probes::new(options.queue_commands),
            newest_event: watch::Sender::new(0),
            health: Health::default(),
            tasks: Tasks::default(),
            ledger,
            gate,
            deadlines,
            settings,
            options,
        });
        workers::rebuild::run(&inner).await?;
        inner.tasks.start(&inner);
        Ok(Self(inner))
    }

    /// Orders and the money around them.
    #[must_use]
    pub fn orders(&self) -> Orders {
        Orders(Arc::clone(&self.0))
    }

    /// SKUs and their stock.
    #[must_use]
    pub fn catalog(&self) -> Catalog {
        Catalog(Arc::clone(&self.0))
    }

    /// Events, readiness, the clock, reconciliation.
    #[must_use]
    pub fn operations(&self) -> Operations {
        Operations(Arc::clone(&self.0))
    }

    /// The rules' settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Refuses new commands, answers those it has, ends the workers, closes the ledger. Calls after this fail with
    /// [`Error::Stopping`]. What is not done within `patience` is given up (it was not acknowledged).
    ///
    /// # Errors
    /// [`Error::LedgerUnavailable`] when the ledger could not be closed in order; nothing acknowledged is lost.
    pub async fn stop(&self, patience: Duration) -> Result<()> {
        let ended = tokio::time::timeout(patience, async {
            self.0.queue.stop();
            self.0.probes.stop();
            self.0.tasks.stop().await;
            self.0.ledger.close().await
        });
        match ended.await {
            Ok(closed) => Ok(closed?),
            Err(_) => Err(Error::LedgerUnavailable(format!("did not stop within {} s", patience.as_secs()))),
        }
    }
}

impl Inner {
    /// Puts one command in front of the ledger and waits for its durable answer.
    pub(crate) async fn submit_one(&self, command: Command) -> Result<Outcome> {
        self.queue.submit(vec![command]).await?.pop().expect("one answer a command")
    }

    /// Puts commands in front of the ledger, in groups a batch can hold; one answer each, in order.
    pub(crate) async fn submit_many(&self, mut commands: Vec<Command>) -> Vec<Result<Outcome>> {
        let mut answers = Vec::with_capacity(commands.len());
        while !commands.is_empty() {
            let rest = commands.split_off(commands.len().min(tidegate_backend::ledger::MAX_BATCH_COMMANDS));
            let count = commands.len();
            match self.queue.submit(commands).await {
                Ok(group) => answers.extend(group),
                Err(e) => answers.extend((0..count).map(|_| Err(e.clone()))),
            }
            commands = rest;
        }
        answers
    }

    /// Places an order, past the gate.
    pub(crate) async fn place(&self, place: Place) -> Result<Outcome> {
        match self.past_the_gate(&place).await? {
            Some(refusal) => Err(refusal.into()),
            None => self.submit_one(Command::Place(place)).await,
        }
    }

    /// Places many: those the gate lets through go to the ledger as one group.
    pub(crate) async fn place_many(&self, places: Vec<Place>) -> Vec<Result<Outcome>> {
        let opinions = workers::probes::judge_many(self, &places).await;
        let passed = places.into_iter().zip(opinions).map(|(place, opinion)| match opinion? {
            None => Ok(Command::Place(place)),
            Some(refusal) => Err(refusal.into()),
        });
        self.submit_sound(passed).await
    }

    /// Decides the commands that there are; what stands in another's place stays its answer. One answer each, in order.
    pub(crate) async fn submit_sound(&self, commands: impl Iterator<Item = Result<Command>>) -> Vec<Result<Outcome>> {
        let mut sound = Vec::new();
        let slots: Vec<Result<()>> = commands.map(|command| command.map(|command| sound.push(command))).collect();
        let mut decided = self.submit_many(sound).await.into_iter();
        slots.into_iter().map(|slot| slot.and_then(|()| decided.next().expect("one answer a command"))).collect()
    }

    pub(crate) fn readiness(&self) -> Readiness {
        let mut degraded = Vec::new();
        if self.queue.is_stopping() {
            return Readiness::NotReady(vec!["stopping".to_owned()]);
        }
        if let Some(why) = self.health.ledger_failure() {
            return Readiness::NotReady(vec![format!("ledger-unavailable: {why}")]);
        }
        let clock = self.ledger.clock().status();
        if clock.stepped {
            degraded
                .push("clock-step: the host's clock was moved; check it, then run `tidegate clock accept`".to_owned());
        }
        if clock.catching_up {
            let ahead = clock.now.since(clock.host) / 1_000;
            degraded.push(format!(
                "clock-catching-up: the ledger's clock is {ahead} s ahead of the host's and runs at half speed until the \
                 host's has caught up; holds last longer meanwhile"
            ));
        }
        if self.health.lagging() {
            degraded.push(
                "deadlines-late: orders are being cancelled more than five seconds after they are due".to_owned(),
            );
        }
        if degraded.is_empty() { Readiness::Ready } else { Readiness::Degraded(degraded) }
    }
}
