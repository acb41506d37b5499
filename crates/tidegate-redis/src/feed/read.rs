//! What is read in one round trip: the calls, and what their answers say.

use redis::Value;
use tidegate_backend::feed::{Found, Reads, RootRead, SetRead};
use tidegate_backend::{ErrorKind, Result};
use tidegate_core::feed::{Entry, Head, MAX_WHOLE_REPOSTS, Order, Repost, Reposts, SetPart};

use super::{Inner, wire};
use crate::connect::Call;
use crate::reply;
use crate::scripts;

/// Most members, and most users, that one script reads.
const MAX_ITEMS: usize = 8_192;
/// Most ties in one command: each may be some hundred kilobytes.
const MAX_TIES: usize = 16;

/// Whose answers a call's are.
enum Of {
    Heads(Vec<usize>),
    /// Heads of sets that are read by the calls after it.
    SetHeads(Vec<usize>),
    Set(usize),
    Sets(Vec<usize>),
    Users(Vec<usize>),
    Roots(Vec<usize>),
}

/// Calls and whose answers they get.
pub(super) struct Plan<'a> {
    reads: &'a Reads,
    calls: Vec<Call>,
    of: Vec<Of>,
}

/// Runs of `items` that weigh no more than `most` together, or are one.
pub(super) fn runs<T>(items: &[T], most: usize, weigh: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let (mut runs, mut from, mut weight) = (Vec::new(), 0, 0);
    for (at, item) in items.iter().enumerate() {
        let more = weigh(item);
        if at > from && weight + more > most {
            runs.push(&items[from..at]);
            (from, weight) = (at, 0);
        }
        weight += more;
    }
    if from < items.len() {
        runs.push(&items[from..]);
    }
    runs
}

impl Inner {
    /// The calls for everything but the news.
    pub(super) fn plan<'a>(&self, reads: &'a Reads) -> Plan<'a> {
        let mut plan = Plan { reads, calls: Vec::new(), of: Vec::new() };
        for (part, which) in self.by_part(reads.heads.iter().map(|author| author.as_str())) {
            plan.add(self.get_many(part, "h", which.iter().map(|n| reads.heads[*n].as_str())), Of::Heads(which));
        }
        for (part, which) in self.by_part(reads.sets.iter().map(|set| set.author.as_str())) {
            self.plan_sets(part, which, &mut plan);
        }
        for (part, which) in self.by_part(reads.users.iter().map(|user| user.as_str())) {
            for which in which.chunks(MAX_TIES) {
                let names = which.iter().map(|n| reads.users[*n].as_str());
                plan.add(self.get_many(part, "u", names), Of::Users(which.to_vec()));
            }
        }
        for (part, which) in self.by_part(reads.roots.iter().map(|root| root.root.as_str())) {
            let weigh =
                |n: &usize| 1 + MAX_WHOLE_REPOSTS.max(reads.roots[*n].among.as_ref().map_or(0, |users| users.len()));
            for which in runs(&which, MAX_ITEMS, weigh) {
                let roots: Vec<&RootRead> = which.iter().map(|n| &reads.roots[*n]).collect();
                plan.add(self.ask_roots(part, &roots), Of::Roots(which.to_vec()));
            }
        }
        plan
    }

    /// On a server alone, the newest posts of a set come by one command: it has the head too if it reads to the end of the set,
    /// and else says that the set is known. Which version it had at least, and from when on it is whole, its head has told before.
    fn plan_sets(&self, part: usize, which: Vec<usize>, plan: &mut Plan<'_>) {
        let set = |n: &usize| &plan.reads.sets[*n];
        let is_plain = |n: &usize| self.parts == 1 && set(n).order == Order::Newest;
        let (plain, others): (Vec<usize>, Vec<usize>) = which.into_iter().partition(is_plain);
        let mut calls = Vec::new();
        if !plain.is_empty() {
            let names = plain.iter().map(|n| set(n).author.as_str());
            calls.push((self.get_many(part, "h", names), Of::SetHeads(plain.clone())));
            calls.extend(plain.iter().map(|n| (self.ask_newest(part, set(n)), Of::Set(*n))));
        }
        for which in runs(&others, MAX_ITEMS, |n| set(n).max + 1) {
            let sets: Vec<&SetRead> = which.iter().map(set).collect();
            calls.push((self.ask_sets(part, &sets), Of::Sets(which.to_vec())));
        }
        for (call, of) in calls {
            plan.add(call, of);
        }
    }

    fn get_many<'a>(&self, part: usize, kind: &str, names: impl Iterator<Item = &'a str>) -> Call {
        let keys: Vec<Vec<u8>> = names.map(|name| self.keys.feed(part, kind, name)).collect();
        let rest: Vec<&[u8]> = keys[1..].iter().map(Vec::as_slice).collect();
        Call::plain("MGET", &keys[0], &rest)
    }

    fn ask_newest(&self, part: usize, read: &SetRead) -> Call {
        let key = self.keys.feed(part, "a", read.author.as_str());
        let (bound, most) = (wire::bound(read.order, &read.beyond), (read.max + 1).to_string());
        Call::plain("ZRANGE", &key, &[&bound[..], b"-", b"BYLEX", b"REV", b"LIMIT", b"0", most.as_bytes()])
    }

    fn ask_sets(&self, part: usize, sets: &[&SetRead]) -> Call {
        let keys = sets.iter().map(|set| self.keys.feed(part, "a", set.author.as_str())).collect();
        let arguments = sets.iter().flat_map(|set| {
            let order = if set.order == Order::Newest { b"N" } else { b"O" };
            [order.to_vec(), wire::bound(set.order, &set.beyond), (set.max + 1).to_string().into_bytes()]
        });
        Call::script(&scripts::FEED_PARTS, keys, arguments.collect())
    }

    fn ask_roots(&self, part: usize, roots: &[&RootRead]) -> Call {
        let keys = roots.iter().map(|root| self.keys.feed(part, "r", root.root.as_str())).collect();
        let mut arguments = vec![MAX_WHOLE_REPOSTS.to_string().into_bytes()];
        for root in roots {
            match &root.among {
                None => arguments.push(b"-1".to_vec()),
                Some(users) => {
                    arguments.push(users.len().to_string().into_bytes());
                    arguments.extend(users.iter().map(|user| user.as_str().as_bytes().to_vec()));
                }
            }
        }
        Call::script(&scripts::FEED_REPOSTS, keys, arguments)
    }
}

impl Plan<'_> {
    fn add(&mut self, call: Call, of: Of) {
        self.calls.push(call);
        self.of.push(of);
    }

    pub(super) fn take_calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.calls)
    }

    /// What the answers say. A stranger's keys under our names are nothing that is known.
    pub(super) fn found(&self, answers: impl Iterator<Item = Result<Value>>) -> Result<Found> {
        let Reads { news: _, heads, sets, users, roots } = self.reads;
        let mut found = Found {
            heads: vec![None; heads.len()],
            sets: vec![None; sets.len()],
            users: vec![None; users.len()],
            roots: vec![None; roots.len()],
            ..Found::default()
        };
        let mut set_heads: Vec<Option<Head>> = vec![None; sets.len()];
        for (of, answer) in self.of.iter().zip(answers) {
            let answer = match answer {
                Ok(answer) => answer,
                Err(e) if e.kind() == ErrorKind::Corrupt => continue,
                Err(e) => return Err(e),
            };
            let list = reply::list(&answer)?;
            match of {
                Of::Heads(which) => {
                    for (n, head) in which.iter().zip(list) {
                        found.heads[*n] = wire::read_head(reply::bytes(head)?);
                    }
                }
                Of::SetHeads(which) => {
                    for (n, head) in which.iter().zip(list) {
                        set_heads[*n] = wire::read_head(reply::bytes(head)?);
                    }
                }
                Of::Set(n) => found.sets[*n] = newest(list, set_heads[*n], sets[*n].max)?,
                Of::Sets(which) => {
                    for (n, one) in which.iter().zip(list.chunks_exact(2)) {
                        let head = wire::marker(reply::bytes(&one[0])?).and_then(wire::read_head);
                        found.sets[*n] = match head {
                            Some(head) => Some(part(&head, reply::list(&one[1])?, sets[*n].max)?),
                            None => None,
                        };
                    }
                }
                Of::Users(which) => {
                    for (n, ties) in which.iter().zip(list) {
                        found.users[*n] = wire::read_ties(reply::bytes(ties)?);
                    }
                }
                Of::Roots(which) => {
                    for (n, root) in which.iter().zip(list) {
                        found.roots[*n] = reposts(reply::list(root)?, &roots[*n])?;
                    }
                }
            }
        }
        Ok(found)
    }
}

/// Members down to the first of a set, or one more than `max` of them.
fn newest(members: &[Value], head: Option<Head>, max: usize) -> Result<Option<SetPart>> {
    let Some((last, before)) = members.split_last() else { return Ok(None) };
    match (wire::marker(reply::bytes(last)?), head) {
        (Some(marker), _) => match wire::read_head(marker) {
            Some(head) => part(&head, before, max).map(Some),
            None => Ok(None),
        },
        // Only a set that is known has posts.
        (None, Some(head)) if members.len() > max => part(&head, members, max).map(Some),
        // No head, in the set or beside it: somebody deleted it.
        (None, _) => Ok(None),
    }
}

fn part(head: &Head, members: &[Value], max: usize) -> Result<SetPart> {
    let entries: Vec<Entry> = members.iter().take(max).map(wire::entry).collect::<Result<_>>()?;
    Ok(SetPart { version: head.version, from: head.from, entries, more: members.len() > max })
}

fn reposts(answer: &[Value], read: &RootRead) -> Result<Option<Reposts>> {
    let [what, rest @ ..] = answer else { return Ok(None) };
    match (reply::bytes(what)?, rest) {
        (b"A", [fields]) => Ok(Some(Reposts::All(wire::read_reposts(reply::list(fields)?)?))),
        (b"M", [count]) => {
            let count = usize::try_from(reply::integer(count)?).map_err(|_| reply::strange(count))?;
            Ok(Some(Reposts::Many(count)))
        }
        (b"S", lists) => {
            let mut users = read.among.iter().flat_map(|users| users.iter());
            let mut among: Vec<Repost> = Vec::new();
            for list in lists {
                for (value, user) in reply::list(list)?.iter().zip(&mut users) {
                    if *value != Value::Nil {
                        among.push(wire::read_repost(user, value)?);
                    }
                }
            }
            Ok(Some(Reposts::Among(among)))
        }
        _ => Err(reply::strange(what)),
    }
}
