//! A sample of a server's keys: what they begin with, whether they expire, which are ours.

use std::collections::{BTreeSet, HashSet};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tidegate_core::doctor::{KeySample, Keys};
use tidegate_core::watch::Info;

use crate::asks::{all, command};
use crate::bigkeys::{escaped, must_stay, prefix, purpose, shop};
use crate::connect::{RedisOptions, RedisResult};
use crate::keys::{Keys as Names, LOCK_PARTS, MAX_PARTITIONS};

/// Keys that are drawn; a server with no more than these is looked at as a whole.
const DRAWS: u64 = 2_000;
/// Commands in one round trip: others wait for as long as it takes, some tenths of a millisecond.
const BATCH: usize = 250;
/// The first round trip: nobody knows how long the names are.
const FIRST: usize = 25;
/// Names that are taken in one round trip, and in all, bytes; with longer names the sample is smaller.
const BYTES: (usize, usize) = (1 << 20, 8 << 20);
/// Databases that are looked at, those with the most keys.
const DATABASES: usize = 16;
/// Steps of SCAN in one database.
const STEPS: usize = 256;
/// Shops whose own keys are asked for by name.
const SHOPS: usize = 4;

/// A sample while it is taken.
struct Taking<'a> {
    connection: &'a mut MultiplexedConnection,
    sample: KeySample,
    /// Names in this database that were drawn already.
    seen: HashSet<Vec<u8>>,
    shops: BTreeSet<String>,
    bytes: usize,
    /// What is forbidden, as far as it is known.
    no_random: bool,
    no_scan: bool,
}

/// Draws keys at random, looks at every key where there are few, or at the first of SCAN where nothing can be drawn.
pub(super) async fn sample(
    connection: &mut MultiplexedConnection,
    info: &Info,
    options: &RedisOptions,
) -> RedisResult<Keys> {
    let mut databases: Vec<_> = info.keyspaces().collect();
    databases.sort_by_key(|db| std::cmp::Reverse(db.keys));
    let total = databases.iter().map(|db| db.keys).fold(0, u64::saturating_add);
    databases.truncate(DATABASES);
    if info.is_replica() == Some(true) && info.number("cluster_enabled") == Some(1) {
        // Else it would send us to its master.
        drop(all(connection, &[command(&["READONLY"])]).await?);
    }
    let is_small = total <= DRAWS;
    let mut taking = Taking {
        connection,
        sample: KeySample { total, how: if is_small { "all" } else { "random" }, ..KeySample::default() },
        seen: HashSet::new(),
        shops: [options.name.clone()].into(),
        bytes: 0,
        no_random: false,
        no_scan: false,
    };
    let mut current = options.database;
    for db in &databases {
        let number = i64::from(db.db);
        if number != current {
            let selected = all(taking.connection, &[command(&["SELECT", &number.to_string()])]).await?;
            if selected.iter().any(Result::is_err) {
                continue;
            }
            current = number;
        }
        taking.seen.clear();
        let draws = (u128::from(DRAWS) * u128::from(db.keys)).div_ceil(u128::from(total.max(1)));
        let draws = usize::try_from(draws).unwrap_or(BATCH);
        if is_small {
            taking.scan(usize::MAX).await?;
        } else if !taking.no_random {
            taking.draw(draws).await?;
        }
        if taking.no_random && !is_small {
            taking.sample.how = "scan";
            taking.scan(draws).await?;
        }
        if info.text("maxmemory_policy") != Some("noeviction") {
            taking.ask_for_our_own().await?;
        }
    }
    if taking.no_scan && taking.sample.keys == 0 && total > 0 {
        return Ok(Keys::Unseen("RANDOMKEY and SCAN are not permitted".to_owned()));
    }
    Ok(Keys::Seen(taking.sample))
}

fn is_forbidden(answer: &RedisResult<Value>) -> bool {
    answer.as_ref().is_err_and(|e| e.code() == Some("NOPERM"))
}

fn name(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(name) => Some(name),
        _ => None,
    }
}

fn pttl(name: &[u8]) -> Cmd {
    let mut command = redis::cmd("PTTL");
    command.arg(name);
    command
}

impl Taking<'_> {
    /// Draws `draws` keys at random, each with its time to live; what is drawn twice counts once.
    async fn draw(&mut self, draws: usize) -> RedisResult<()> {
        let (mut left, mut batch, mut drawn) = (draws, FIRST, Vec::new());
        loop {
            let count = if self.bytes < BYTES.1 { left.min(batch) } else { 0 };
            if count == 0 && drawn.is_empty() {
                return Ok(());
            }
            left -= count;
            let mut commands: Vec<Cmd> = drawn.iter().map(|name: &Vec<u8>| pttl(name)).collect();
            commands.extend((0..count).map(|_| command(&["RANDOMKEY"])));
            let mut answers = all(self.connection, &commands).await?;
            let random = answers.split_off(drawn.len());
            for (name, answer) in std::mem::take(&mut drawn).iter().zip(answers) {
                self.add(name, Some(answer));
            }
            let mut taken = 0;
            for answer in random {
                self.no_random |= is_forbidden(&answer);
                let Some(name) = answer.ok().and_then(name) else { continue };
                taken += name.len();
                if self.seen.insert(name.clone()) {
                    drawn.push(name);
                }
            }
            if self.no_random {
                return Ok(());
            }
            self.bytes += taken;
            let length = (taken / count.max(1)).max(1);
            batch = (BYTES.0 / length).clamp(1, BATCH);
        }
    }

    /// Looks at up to `most` keys in the order of SCAN.
    async fn scan(&mut self, most: usize) -> RedisResult<()> {
        let mut cursor = "0".to_owned();
        for _ in 0..STEPS {
            let mut answers = all(self.connection, &[command(&["SCAN", &cursor, "COUNT", "200"])]).await?;
            let Some(answer) = answers.pop() else { return Ok(()) };
            if answer.is_err() {
                self.no_scan = true;
                return Ok(());
            }
            let (next, names): (String, Vec<Vec<u8>>) = redis::from_redis_value(answer?)?;
            let names: Vec<Vec<u8>> = names.into_iter().filter(|name| self.seen.insert(name.clone())).collect();
            self.bytes += names.iter().map(Vec::len).sum::<usize>();
            for names in names.chunks(BATCH) {
                if self.sample.ttl_forbidden {
                    names.iter().for_each(|name| self.add(name, None));
                    continue;
                }
                let commands: Vec<Cmd> = names.iter().map(|name| pttl(name)).collect();
                let answers = all(self.connection, &commands).await?;
                names.iter().zip(answers).for_each(|(name, answer)| self.add(name, Some(answer)));
            }
            cursor = next;
            if cursor == "0" || self.seen.len() >= most || self.bytes >= BYTES.1 {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Counts a key. `ttl`: what PTTL says; `None`: it may not be asked.
    fn add(&mut self, name: &[u8], ttl: Option<RedisResult<Value>>) {
        let expires = match ttl {
            None => None,
            Some(Ok(Value::Int(-2))) => return,
            Some(Ok(Value::Int(ttl))) => Some(ttl >= 0),
            Some(answer) => {
                self.sample.ttl_forbidden |= is_forbidden(&answer);
                None
            }
        };
        let label = escaped(prefix(name));
        let is_ours = purpose(name).is_some();
        let group = self
            .sample
            .prefixes
            .entry(label)
            .or_insert_with(|| tidegate_core::doctor::Group { is_ours, ..tidegate_core::doctor::Group::default() });
        group.keys += 1;
        group.without_ttl += u64::from(expires == Some(false));
        group.is_ours &= is_ours;
        self.sample.keys += 1;
        if self.shops.len() < SHOPS
            && let Some(shop) = shop(name)
        {
            self.shops.insert(shop);
        }
        self.add_own(name, expires != Some(false));
    }

    fn add_own(&mut self, name: &[u8], expires: bool) {
        let Some(what) = purpose(name).filter(|_| must_stay(name)) else { return };
        let own = self.sample.own.entry(what.to_owned()).or_default();
        own.keys += 1;
        own.expiring += u64::from(expires);
    }

    /// Asks for those of our own keys whose names are known: a few among millions are drawn by nobody.
    async fn ask_for_our_own(&mut self) -> RedisResult<()> {
        let names: Vec<Vec<u8>> = self.shops.iter().flat_map(|shop| known_names(shop)).collect();
        let names: Vec<Vec<u8>> = names.into_iter().filter(|name| !self.seen.contains(name)).collect();
        for names in names.chunks(BATCH) {
            let commands: Vec<Cmd> = names.iter().map(|name| pttl(name)).collect();
            let answers = all(self.connection, &commands).await?;
            let is_refused = answers.first().is_some_and(is_forbidden);
            for (name, answer) in names.iter().zip(answers) {
                // In a Cluster another server may have it: that one is asked as well.
                if let Ok(Value::Int(ttl @ -1..)) = answer {
                    self.add_own(name, ttl >= 0);
                }
            }
            if is_refused {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Keys of a shop that are there whenever it uses what they are for.
fn known_names(shop: &str) -> Vec<Vec<u8>> {
    let keys = Names::new(shop);
    let mut names = vec![keys.owner(), keys.nodes(), keys.queue_names(), keys.born()];
    for partition in 0..MAX_PARTITIONS {
        let [due, held, mark] = keys.partition(partition);
        names.extend([due, held, mark]);
    }
    names.extend((0..LOCK_PARTS).map(|part| keys.locks_alive(part)));
    names
}
