//! The index in numbers.

use redis::Value;
use tidegate_backend::{Error, ErrorKind, Result};
use tidegate_core::Millis;
use tidegate_core::queue::Stats;

use super::{Inner, wire};
use crate::connect::Call;
use crate::reply;
use crate::scripts;

/// Further pages of a partition's leases that are read; a page has about 512, so this is far above what nodes may hold.
const MAX_PAGES: usize = 1_000;

/// Later than any clock.
const LAST: Millis = Millis(1 << 53);

/// What one partition answered.
#[derive(Debug)]
struct Part {
    members: u64,
    due: u64,
    head: Option<Millis>,
    leased: u64,
    /// Where the next page of its leases begins.
    next: Vec<u8>,
}

impl Part {
    fn read(value: &Value) -> Result<Self> {
        let [_, members, due, head, leased, next] = reply::parts::<6>(value)?;
        let number = |value: &Value| Ok(reply::integer(value)?.max(0).unsigned_abs());
        Ok(Self {
            members: number(members)?,
            due: number(due)?,
            head: reply::score(head)?.map(wire::instant),
            leased: number(leased)?,
            next: reply::bytes(next)?.to_vec(),
        })
    }
}

impl Inner {
    /// All partitions in numbers.
    pub(super) async fn numbers(&self, now: Millis) -> Result<Stats> {
        self.settled().await?;
        // Scripts read no infinities.
        let until = wire::due_until(now.min(LAST));
        let parts = self.over_partitions(&scripts::NUMBERS, &[until.clone(), b"0".to_vec()], |_| Vec::new()).await?;
        if parts.len() < self.partitions {
            let why = self.parts_trouble().unwrap_or_else(|| "a part of the deadline index cannot be used".to_owned());
            return Err(Error::new(ErrorKind::Unavailable, why));
        }
        let mut stats = Stats::default();
        for (partition, part) in parts {
            let mut part = Part::read(&part)?;
            let mut pages = 0;
            while part.next != b"0" && pages < MAX_PAGES {
                let keys = self.keys.partition(partition).to_vec();
                let call = Call::script(&scripts::NUMBERS, keys, vec![until.clone(), part.next]);
                let mut told = Vec::with_capacity(1);
                self.split(self.connector.one(call).await?, &[partition], &mut told)?;
                let Some((_, page)) = told.first() else { break };
                let page = Part::read(page)?;
                part = Part { leased: part.leased + page.leased, ..page };
                pages += 1;
            }
            stats.pending += part.members.saturating_sub(part.leased);
            stats.due += part.due;
            stats.leased += part.leased;
            let head = part.head.filter(|at| *at <= now);
            stats.oldest_due_at = stats.oldest_due_at.into_iter().chain(head).min();
        }
        Ok(stats)
    }
}
