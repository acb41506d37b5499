//! What the nodes of one ledger tell each other, through pub/sub.
//!
//! Notices that wait are merged: of each SKU only the newest copy counts. One message is on its way at a time; while it is,
//! the next one gathers, so a lone notice goes at once and a flood is batched. `wire.rs` says how they look.

mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_backend::{BoxFuture, Bus, Notice};
use tidegate_core::SkuId;
use tidegate_core::gate::Copy;
use tokio::sync::{Notify, watch};

use crate::connect::{Call, Connector, Heard, Listener};
use crate::keys::Keys;
use crate::tasks::Tasks;

/// Most SKUs whose copies may wait; what finds no room is dropped, and the others are told of a gap.
const MAX_WAITING: usize = 20_000;
/// Most copies of one message, about 100 kB.
const MAX_COPIES: usize = 1_000;
/// Most notices that `heard` gives at once.
const MAX_HEARD: usize = 256;
/// Most nodes whose messages are counted.
const MAX_NODES: usize = 1_024;
/// Between two tries to tell.
const PAUSE: Duration = Duration::from_millis(50);

/// The link between the nodes of one ledger, on one channel of Redis or Valkey.
pub struct RedisBus {
    shared: Arc<Shared>,
    ears: tokio::sync::Mutex<Ears>,
    deaf: watch::Receiver<Option<String>>,
    teller: Tasks,
}

struct Shared {
    connector: Connector,
    channel: String,
    node: [u8; 8],
    waiting: Mutex<Waiting>,
    filled: Notify,
    told: Notify,
}

#[derive(Default)]
struct Waiting {
    copies: HashMap<SkuId, Copy>,
    rest: Notice,
    something: bool,
    on_its_way: bool,
}

struct Ears {
    listener: Listener,
    /// The number of the last message of each node.
    last: HashMap<[u8; 8], u64>,
}

impl RedisBus {
    /// Opens the link and starts its tasks. A server that cannot be reached is no error: `trouble` says so, and the link
    /// works once it can.
    #[must_use]
    pub fn open(connector: Connector) -> Self {
        let channel = Keys::new(&connector.options().name).bus_channel(connector.owner().map(|owner| owner.ledger));
        let listener = Listener::start(connector.options().clone(), channel.clone());
        let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
        let shared = Arc::new(Shared {
            connector,
            channel,
            node: random.to_be_bytes(),
            waiting: Mutex::default(),
            filled: Notify::new(),
            told: Notify::new(),
        });
        let teller = Tasks::new(vec![tokio::spawn(tell(Arc::clone(&shared)))]);
        let deaf = listener.trouble();
        let ears = tokio::sync::Mutex::new(Ears { listener, last: HashMap::new() });
        Self { shared, ears, deaf, teller }
    }
}

impl Waiting {
    fn merge(&mut self, notice: Notice) {
        self.something = true;
        for (sku, copy) in notice.copies {
            if self.copies.len() >= MAX_WAITING && !self.copies.contains_key(&sku) {
                self.rest.gap = true;
                continue;
            }
            let held = self.copies.entry(sku).or_insert_with(|| copy.clone());
            if held.stock_version <= copy.stock_version {
                *held = copy;
            }
        }
        self.rest.newest_event = self.rest.newest_event.max(notice.newest_event);
        self.rest.clock = self.rest.clock.max(notice.clock);
        self.rest.gap |= notice.gap;
    }

    /// One message's worth.
    fn take(&mut self) -> Notice {
        let mut notice = std::mem::take(&mut self.rest);
        if self.copies.len() <= MAX_COPIES {
            notice.copies = self.copies.drain().collect();
        } else {
            let some: Vec<SkuId> = self.copies.keys().take(MAX_COPIES).cloned().collect();
            notice.copies = some.into_iter().filter_map(|sku| self.copies.remove_entry(&sku)).collect();
        }
        self.something = !self.copies.is_empty();
        self.on_its_way = true;
        notice
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next(&self) -> Notice {
        loop {
            {
                let mut waiting = self.lock();
                if waiting.something {
                    return waiting.take();
                }
            }
            self.filled.notified().await;
        }
    }
}

/// Tells until it is aborted.
async fn tell(shared: Arc<Shared>) {
    let mut number = 0;
    loop {
        let notice = shared.next().await;
        number += 1;
        let message = wire::encode(shared.node, number, &notice);
        let call = Call::plain("PUBLISH", shared.channel.as_bytes(), &[&message]);
        let told = shared.connector.one(call).await;
        shared.lock().on_its_way = false;
        if let Err(e) = told {
            tracing::debug!(error = %e, "other nodes could not be told");
            // Whether it arrived is not known: told again, with a word that something may be missing.
            shared.lock().merge(Notice { gap: true, ..notice });
            tokio::time::sleep(PAUSE).await;
        }
        shared.told.notify_waiters();
    }
}

impl Ears {
    /// What a message says; `None` for one's own and for what is no message of this version.
    fn understand(&mut self, heard: Heard, own: [u8; 8]) -> Option<Notice> {
        let Heard::Message(bytes) = heard else {
            self.last.clear();
            return Some(Notice { gap: true, ..Notice::default() });
        };
        let (node, number, mut notice) = wire::decode(&bytes)?;
        if node == own {
            return None;
        }
        if self.last.len() >= MAX_NODES {
            self.last.clear();
        }
        let before = self.last.insert(node, number);
        notice.gap |= before.is_some_and(|before| before + 1 != number);
        Some(notice)
    }
}

impl Bus for RedisBus {
    fn tell(&self, notice: Notice) {
        self.shared.lock().merge(notice);
        self.shared.filled.notify_one();
    }

    fn heard(&self) -> BoxFuture<'_, Vec<Notice>> {
        Box::pin(async move {
            let mut ears = self.ears.lock().await;
            let mut notices = Vec::new();
            while notices.is_empty() {
                // Nothing is lost when this future is dropped: no message is held across a wait.
                let mut next = Some(ears.listener.next().await);
                while let Some(heard) = next {
                    notices.extend(ears.understand(heard, self.shared.node));
                    next = if notices.len() < MAX_HEARD { ears.listener.try_next() } else { None };
                }
            }
            notices
        })
    }

    fn trouble(&self) -> Option<String> {
        self.shared.connector.trouble().or_else(|| self.deaf.borrow().clone())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let told = async {
                loop {
                    let told = self.shared.told.notified();
                    let mut told = std::pin::pin!(told);
                    told.as_mut().enable();
                    {
                        let waiting = self.shared.lock();
                        if !waiting.something && !waiting.on_its_way {
                            return;
                        }
                    }
                    told.await;
                }
            };
            // What cannot be told in time is found by the others' own reads.
            let _ = tokio::time::timeout(Duration::from_millis(500), told).await;
            self.teller.end();
        })
    }
}
