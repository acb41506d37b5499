//! Changes, fills and leases as scripts.

use redis::Value;
use tidegate_backend::feed::{MAX_FEED_COMMANDS, MAX_FEED_READS};
use tidegate_backend::{Error, ErrorKind, Result};
use tidegate_core::Millis;
use tidegate_core::feed::copy::lowest;
use tidegate_core::feed::{
    AuthorSet, Change, Fill, MAX_REPOSTS, MAX_SET, PostId, Repost, Subject, Version, WINDOW_MS, What,
};

use super::read::runs;
use super::{Inner, news, wire};
use crate::connect::Call;
use crate::reply;
use crate::scripts;

/// Life of a floor, milliseconds: what is filled in was read less than a minute before.
const FLOOR_MS: i64 = 61_000;
/// Life of a set without changes: the window, and a day.
const SET_MS: i64 = WINDOW_MS + 86_400_000;
/// Life of ties and reposts without changes: a week.
const TIES_MS: i64 = 7 * 86_400_000;
/// Life of news after the last: a day.
const NEWS_MS: i64 = 86_400_000;
/// Life of what is staged.
const STAGE_MS: i64 = 30_000;
/// Life of a lease.
const LEASE_MS: i64 = 2_000;
/// Most arguments of a script of changes, as far as one change has no more.
const MAX_ARGUMENTS: usize = 2_000;
/// Most members and bytes of one round of fills.
const MAX_ROUND: usize = 20_000;
/// Reposts that are staged by one script.
const STAGED: usize = 1_000;

fn decimal(number: impl std::fmt::Display) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// A key's kind and the name in it.
fn named(subject: &Subject) -> (&'static str, &str) {
    match subject {
        Subject::Author(author) => ("a", author.as_str()),
        Subject::User(user) => ("u", user.as_str()),
        Subject::Root(root) => ("r", root.as_str()),
    }
}

/// Of a change: its kind, its versions, its news, and what is different.
fn arguments(change: &Change, to: &mut Vec<Vec<u8>>) {
    let kind = news::kind(change);
    to.extend([decimal(kind), decimal(change.prev), decimal(change.version), news::told(change).into_bytes()]);
    match &change.what {
        What::Posts { added, removed, .. } => {
            to.extend([decimal(added.len()), decimal(removed.len())]);
            for entry in added {
                to.extend([decimal(entry.place.at.0), wire::place(&entry.place), wire::member(entry)]);
            }
            for place in removed {
                to.extend([decimal(place.at.0), wire::place(place)]);
            }
        }
        What::Ties { follow, unfollow, hide, show, .. } => {
            let names = [('f', &follow[..]), ('u', &unfollow[..]), ('h', &hide[..]), ('s', &show[..])];
            to.push(wire::names(names).into_bytes());
        }
        What::Reposts { set, unset, .. } => {
            to.extend([decimal(set.len()), decimal(unset.len())]);
            for repost in set {
                to.extend([repost.user.as_str().into(), wire::repost(repost)]);
            }
            to.extend(unset.iter().map(|user| user.as_str().into()));
        }
        What::Floor(_) => {}
    }
}

fn weigh(change: &Change) -> usize {
    let more = match &change.what {
        What::Posts { added, removed, touched, .. } => 3 * added.len() + 2 * removed.len() + touched.len(),
        What::Ties { follow, unfollow, hide, show, .. } => {
            (follow.len() + unfollow.len() + hide.len() + show.len()) / 8
        }
        What::Reposts { set, unset, .. } => 2 * set.len() + unset.len(),
        What::Floor(_) => 0,
    };
    4 + more
}

fn check(count: usize, most: usize, what: &str) -> Result<()> {
    if count > most {
        let why = format!("{count} {what} at a time are more than the {most} that a store of a feed takes");
        return Err(Error::new(ErrorKind::Command, why));
    }
    Ok(())
}

impl Inner {
    pub(super) async fn apply(&self, changes: &[Change], now: Millis) -> Result<()> {
        check(changes.len(), MAX_FEED_COMMANDS, "changes")?;
        let subjects: Vec<Subject> = changes.iter().map(Change::subject).collect();
        let mut pieces: Vec<(usize, Vec<usize>)> = Vec::new();
        for (part, which) in self.by_part(subjects.iter().map(|subject| named(subject).1)) {
            let cut = runs(&which, MAX_ARGUMENTS, |n| weigh(&changes[*n]));
            pieces.extend(cut.into_iter().map(|which| (part, which.to_vec())));
        }
        let call = |(part, which): &(usize, Vec<usize>)| {
            let keys = self.keys_of_changes(*part, which.iter().map(|n| &subjects[*n]));
            let mut all: Vec<Vec<u8>> = [FLOOR_MS, SET_MS, TIES_MS, lowest(now).0].map(decimal).into();
            all.splice(0..0, [decimal(self.options.news_kept), decimal(NEWS_MS)]);
            all.extend([decimal(MAX_SET), decimal(MAX_REPOSTS)]);
            which.iter().for_each(|n| arguments(&changes[*n], &mut all));
            Call::script(&scripts::FEED_APPLY, keys, all)
        };
        let mut failed = None;
        let answers = self.connector.run(pieces.iter().map(call).collect()).await;
        for (piece, answer) in pieces.iter().zip(answers) {
            let answer = match answer {
                Err(e) if e.kind() == ErrorKind::Corrupt => {
                    self.mend(piece.0, piece.1.iter().map(|n| &subjects[*n])).await?;
                    self.connector.one(call(piece)).await
                }
                answer => answer,
            };
            match answer.and_then(|id| news::id(&id)) {
                Ok(id) => self.news.has_told(piece.0, id),
                Err(e) => failed = Some(e),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn keys_of_changes<'a>(&self, part: usize, subjects: impl Iterator<Item = &'a Subject>) -> Vec<Vec<u8>> {
        let mut keys = vec![self.keys.feed_news(part)];
        for subject in subjects {
            let (kind, name) = named(subject);
            let copy = self.keys.feed(part, kind, name);
            let head = if kind == "a" { self.keys.feed(part, "h", name) } else { copy.clone() };
            keys.extend([copy, head]);
        }
        keys
    }

    /// Deletes what strangers left under our keys, as far as it is of another type.
    pub(super) async fn mend<'a>(&self, part: usize, subjects: impl Iterator<Item = &'a Subject>) -> Result<()> {
        let (mut keys, mut types) = (vec![self.keys.feed_news(part)], vec!["stream"]);
        for subject in subjects {
            let (kind, name) = named(subject);
            keys.push(self.keys.feed(part, kind, name));
            types.push(if kind == "a" {
                "zset"
            } else if kind == "u" {
                "string"
            } else {
                "hash"
            });
            if kind == "a" {
                keys.push(self.keys.feed(part, "h", name));
                types.push("string");
            }
        }
        let types = types.into_iter().map(|name| name.as_bytes().to_vec()).collect();
        self.connector.one(Call::script(&scripts::FEED_MEND, keys, types)).await.map(drop)
    }

    pub(super) async fn fill(&self, fills: &[Fill]) -> Result<Vec<bool>> {
        check(fills.len(), MAX_FEED_READS, "fills")?;
        let weigh = |fill: &Fill| match fill {
            Fill::Author(_, set) => 8 + set.entries.len(),
            Fill::User(_, ties) => 8 + (ties.follows.len() + ties.hidden.len()) / 4,
            Fill::Root(_, _, reposts) => 8 + reposts.len(),
        };
        let mut taken = Vec::with_capacity(fills.len());
        for round in runs(fills, MAX_ROUND, weigh) {
            taken.extend(self.fill_round(round).await?);
        }
        Ok(taken)
    }

    async fn fill_round(&self, fills: &[Fill]) -> Result<Vec<bool>> {
        let mut staged = Vec::new();
        let calls: Vec<Call> = fills.iter().map(|fill| self.fill_call(fill, &mut staged)).collect();
        // What is staged must be there before it becomes a copy.
        self.connector.run(staged).await.into_iter().try_for_each(|answer| answer.map(drop))?;
        let mut taken = Vec::with_capacity(fills.len());
        for (fill, answer) in fills.iter().zip(self.connector.run(calls).await) {
            let answer = match answer {
                Err(e) if e.kind() == ErrorKind::Corrupt => {
                    let subject = fill.subject();
                    self.mend(self.part(named(&subject).1), [&subject].into_iter()).await?;
                    let mut staged = Vec::new();
                    let call = self.fill_call(fill, &mut staged);
                    self.connector.run(staged).await.into_iter().try_for_each(|answer| answer.map(drop))?;
                    self.connector.one(call).await
                }
                answer => answer,
            };
            taken.push(reply::integer(&answer?)? == 1);
        }
        Ok(taken)
    }

    fn fill_call(&self, fill: &Fill, staged: &mut Vec<Call>) -> Call {
        let subject = fill.subject();
        let (kind, name) = named(&subject);
        let part = self.part(name);
        let (copy, lease) = (self.keys.feed(part, kind, name), self.lease_key(part, kind, name));
        match fill {
            Fill::Author(_, set) => self.fill_set(set, vec![copy, self.keys.feed(part, "h", name), lease]),
            Fill::User(_, ties) => {
                let arguments = vec![decimal(ties.version), wire::ties(ties), decimal(TIES_MS)];
                Call::script(&scripts::FEED_FILL_TIES, vec![copy, lease], arguments)
            }
            Fill::Root(root, version, reposts) => {
                let stage = self.stage(part, root, *version, reposts, staged);
                let arguments = vec![decimal(version), decimal(TIES_MS), decimal(reposts.len())];
                Call::script(&scripts::FEED_FILL_REPOSTS, vec![copy, lease, stage], arguments)
            }
        }
    }

    fn fill_set(&self, set: &AuthorSet, keys: Vec<Vec<u8>>) -> Call {
        let mut arguments = vec![decimal(set.version), wire::head(set), decimal(SET_MS)];
        arguments.extend(set.entries.iter().map(wire::member));
        Call::script(&scripts::FEED_FILL_SET, keys, arguments)
    }

    /// A root may have so many reposts that one script would hold up everyone else.
    fn stage(
        &self,
        part: usize,
        root: &PostId,
        version: Version,
        reposts: &[Repost],
        staged: &mut Vec<Call>,
    ) -> Vec<u8> {
        let stage = self.keys.feed(part, "s", &format!("{root}:{}", uuid::Uuid::new_v4().simple()));
        let mut fields = vec![Vec::new(), wire::reposts_version(version)];
        fields.extend(reposts.iter().flat_map(|repost| [repost.user.as_str().into(), wire::repost(repost)]));
        for fields in fields.chunks(2 * STAGED) {
            let arguments = std::iter::once(decimal(STAGE_MS)).chain(fields.iter().cloned()).collect();
            staged.push(Call::script(&scripts::FEED_STAGE, vec![stage.clone()], arguments));
        }
        stage
    }

    fn lease_key(&self, part: usize, kind: &str, name: &str) -> Vec<u8> {
        self.keys.feed(part, "l", &format!("{kind}:{name}"))
    }

    pub(super) async fn lease(&self, subjects: &[Subject]) -> Result<Vec<bool>> {
        check(subjects.len(), MAX_FEED_READS, "leases")?;
        let life = decimal(LEASE_MS);
        let call = |subject: &Subject| {
            let (kind, name) = named(subject);
            Call::plain("SET", &self.lease_key(self.part(name), kind, name), &[b"1", b"NX", b"PX", &life[..]])
        };
        let answers = self.connector.run(subjects.iter().map(call).collect()).await;
        answers.into_iter().map(|answer| answer.map(|answer| answer != Value::Nil)).collect()
    }
}
