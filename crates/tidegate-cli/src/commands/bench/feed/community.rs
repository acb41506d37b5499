//! A community that is made up: the same one every time, but for the instant from which its posts count back.
//!
//! Authors have ranks; the author of rank r has 1/r of the posts of the first (Zipf's law with exponent 1). Posts of the more
//! active half lie anywhere in the week. The newest of each of the less active half is six days old, so that there are as many
//! quiet authors as the largest quiet viewer follows.

use std::fmt::Write as _;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use tidegate::core::Millis;
use tidegate::feed::{Body, Command, Content, NewPost, PostId, UserId, Visibility};

use crate::failure::{Failure, Result};

/// Of everything that is drawn.
const SEED: u64 = 0x7469_6465_6761_7465;
/// Authors and posts at scale 1.
const AUTHORS: u64 = 20_000;
const POSTS: u64 = 600_000;
/// Whom viewers follow, in numbers.
const FOLLOWEES: [usize; 5] = [50, 200, 500, 1_000, 10_000];
/// Viewers beside these: readers of every day.
const CROWD: u64 = 200;
const CROWD_FOLLOWEES: usize = 200;
/// An hour before the window ends, so that nothing leaves it while this runs.
const WEEK_MS: i64 = 7 * DAY_MS - HOUR_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
const HOUR_MS: i64 = 3_600_000;
/// How old the newest posts of quiet authors are, at least.
const QUIET_MS: i64 = 6 * DAY_MS;
/// Length of a post, bytes.
const BODY: std::ops::RangeInclusive<usize> = 200..=300;
const WORDS: [&str; 24] = [
    "the", "kettle", "is", "on", "and", "we", "walked", "down", "to", "harbour", "before", "rain", "came", "in",
    "with", "tide", "nobody", "saw", "boats", "leave", "until", "morning", "quietly", "again",
];

/// Whom a viewer follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Taste {
    /// The most active authors.
    Busy,
    /// Anybody.
    Mixed,
    /// Those whose newest post is six days old.
    Quiet,
}

impl Taste {
    /// In a figure.
    pub fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Mixed => "mixed",
            Self::Quiet => "quiet",
        }
    }
}

/// A reader.
#[derive(Debug, Clone)]
pub struct Viewer {
    /// His name.
    pub name: UserId,
    /// Whom he likes.
    pub taste: Taste,
    /// Ranks of those he follows.
    pub followees: Vec<usize>,
}

impl Viewer {
    /// In a figure.
    pub fn label(&self) -> String {
        format!("{} followees, {}", self.followees.len(), self.taste.name())
    }
}

/// A community.
pub struct Community {
    /// By rank.
    pub authors: Vec<UserId>,
    /// How many posts each has.
    counts: Vec<u64>,
    /// The viewers that pages are measured for.
    pub viewers: Vec<Viewer>,
    /// Readers of every day.
    pub crowd: Vec<Viewer>,
    /// From when its posts count back.
    now: Millis,
}

/// A name that is well formed.
pub fn user(name: &str) -> UserId {
    UserId::parse(name).expect("it is short and of plain letters")
}

impl Community {
    /// As large as `scale` says.
    pub fn new(scale: f64, now: Millis) -> Self {
        let scaled = |n: u64, least: u64| ((n as f64 * scale) as u64).max(least);
        let mut chance = StdRng::seed_from_u64(SEED);
        let count = usize::try_from(scaled(AUTHORS, 100)).unwrap_or(usize::MAX);
        // Neighbours by name are not neighbours by rank: no index of a database finds the active ones side by side.
        let mut numbers: Vec<usize> = (0..count).collect();
        numbers.shuffle(&mut chance);
        let authors: Vec<UserId> = numbers.iter().map(|number| user(&format!("author-{number:05}"))).collect();
        let counts = zipf(count, scaled(POSTS, 3_000));
        let mut viewers = Vec::new();
        let mut sizes: Vec<usize> = FOLLOWEES.iter().map(|most| (*most).min(count / 2)).collect();
        sizes.dedup();
        for size in sizes {
            let mut anybody: Vec<usize> = (0..count).collect();
            anybody.shuffle(&mut chance);
            anybody.truncate(size);
            let mut quiet: Vec<usize> = (count - count / 2..count).collect();
            quiet.shuffle(&mut chance);
            quiet.truncate(size);
            for (taste, followees) in
                [(Taste::Busy, (0..size).collect()), (Taste::Mixed, anybody), (Taste::Quiet, quiet)]
            {
                viewers.push(Viewer { name: user(&format!("reader-{}-{size}", taste.name())), taste, followees });
            }
        }
        let follows = CROWD_FOLLOWEES.min(count / 2);
        let crowd = (0..scaled(CROWD, 8)).map(|n| {
            let followees = rand::seq::index::sample(&mut chance, count, follows).into_vec();
            Viewer { name: user(&format!("reader-{n:03}")), taste: Taste::Mixed, followees }
        });
        let crowd = crowd.collect();
        Self { authors, counts, viewers, crowd, now }
    }

    /// How many posts there are.
    pub fn posts(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many follows there are.
    pub fn follows(&self) -> usize {
        self.everybody().map(|viewer| viewer.followees.len()).sum()
    }

    /// All who read.
    pub fn everybody(&self) -> impl Iterator<Item = &Viewer> {
        self.viewers.iter().chain(&self.crowd)
    }

    /// The viewer with this taste and about so many followees: the largest there is, if none has as many.
    pub fn viewer(&self, followees: usize, taste: Taste) -> &Viewer {
        let fits = |viewer: &&Viewer| viewer.taste == taste && viewer.followees.len() <= followees;
        let found = self.viewers.iter().filter(fits).max_by_key(|viewer| viewer.followees.len());
        found.unwrap_or(&self.viewers[0])
    }

    /// The posts of an author, the newest first.
    pub fn posts_of(&self, rank: usize) -> Vec<NewPost> {
        let mut chance = StdRng::seed_from_u64(SEED.wrapping_mul(2_654_435_761).wrapping_add(rank as u64));
        let is_quiet = rank >= self.authors.len() - self.authors.len() / 2;
        let count = self.counts[rank];
        let ago = |n: u64| match (is_quiet, n) {
            (true, 0) => QUIET_MS..QUIET_MS + HOUR_MS / 2,
            (true, _) => QUIET_MS + HOUR_MS / 2..WEEK_MS,
            (false, _) => 0..WEEK_MS,
        };
        let mut ages: Vec<i64> = (0..count).map(|n| chance.random_range(ago(n))).collect();
        ages.sort_unstable();
        ages.into_iter().map(|age| self.post(rank, self.now.plus(-age), &mut chance)).collect()
    }

    fn post(&self, rank: usize, at: Millis, chance: &mut StdRng) -> NewPost {
        NewPost {
            id: post_id(at, chance),
            author: self.authors[rank].clone(),
            content: Content::Body(Body::parse(&text(chance)).expect("it is short")),
            published_at: Some(at),
            visibility: Visibility::Public,
        }
    }

    /// Batches of commands that publish all posts, author after author.
    pub fn publications(&self, most: usize) -> impl Iterator<Item = Vec<Command>> + '_ {
        let mut ranks = 0..self.authors.len();
        let mut waiting: Vec<Command> = Vec::new();
        std::iter::from_fn(move || {
            while waiting.len() < most {
                let Some(rank) = ranks.next() else { break };
                waiting.extend(self.posts_of(rank).into_iter().map(Command::Publish));
            }
            let rest = waiting.split_off(waiting.len().min(most));
            let batch = std::mem::replace(&mut waiting, rest);
            (!batch.is_empty()).then_some(batch)
        })
    }

    /// Batches of commands that follow.
    pub fn followings(&self, most: usize) -> impl Iterator<Item = Vec<Command>> + '_ {
        let mut all = self.everybody().flat_map(move |viewer| {
            let follow = |rank: &usize| Command::Follow {
                user: viewer.name.clone(),
                other: self.authors[*rank].clone(),
                since: None,
            };
            viewer.followees.iter().map(follow)
        });
        std::iter::from_fn(move || {
            let batch: Vec<Command> = all.by_ref().take(most).collect();
            (!batch.is_empty()).then_some(batch)
        })
    }

    /// A post that is new now, by somebody.
    ///
    /// # Errors
    /// [`Failure::Work`]: no text.
    pub fn fresh(author: &UserId, at: Millis, chance: &mut StdRng) -> Result<NewPost> {
        let body = Body::parse(&text(chance)).map_err(|e| Failure::Work(e.to_string()))?;
        Ok(NewPost {
            id: post_id(at, chance),
            author: author.clone(),
            content: Content::Body(body),
            published_at: None,
            visibility: Visibility::Public,
        })
    }
}

/// Numbers in proportion to 1/rank, that are `total` together.
fn zipf(ranks: usize, total: u64) -> Vec<u64> {
    let whole: f64 = (1..=ranks).map(|rank| 1.0 / rank as f64).sum();
    let (mut sum, mut given) = (0.0, 0);
    let share = |rank: usize| {
        sum += 1.0 / rank as f64;
        let until = (total as f64 * sum / whole).round() as u64;
        let count = until - given;
        given = until;
        count
    };
    (1..=ranks).map(share).collect()
}

/// In the form of the ids that a server makes: UUIDs of version 7.
fn post_id(at: Millis, chance: &mut StdRng) -> PostId {
    let (ms, bits): (u64, u128) = (at.0.unsigned_abs(), chance.random());
    let id = format!(
        "{:08x}-{:04x}-7{:03x}-{:04x}-{:012x}",
        ms >> 16,
        ms & 0xffff,
        bits & 0xfff,
        0x8000 | (bits >> 12 & 0x3fff),
        bits >> 32 & 0xffff_ffff_ffff
    );
    PostId::parse(&id).expect("it is short and of plain letters")
}

fn text(chance: &mut StdRng) -> String {
    let length = chance.random_range(BODY);
    let mut text = String::with_capacity(length + 16);
    while text.len() < length {
        let word = WORDS[chance.random_range(0..WORDS.len())];
        // A String takes whatever is written.
        let _ = write!(text, "{word}{}", chance.random_range(0..100));
        text.push(' ');
    }
    text.truncate(length);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_as_large_as_it_says_and_the_same_every_time() {
        let community = Community::new(0.01, Millis(1_700_000_000_000));
        assert_eq!((community.authors.len(), community.posts()), (200, 6_000));
        let again = Community::new(0.01, Millis(1_700_000_000_000));
        let posts: Vec<NewPost> = (0..200).flat_map(|rank| community.posts_of(rank)).collect();
        assert_eq!(posts, (0..200).flat_map(|rank| again.posts_of(rank)).collect::<Vec<_>>());
        assert_eq!(posts.len(), 6_000);
        let batches: Vec<usize> = community.publications(500).map(|batch| batch.len()).collect();
        assert_eq!(batches, [500; 12]);
        let follows: usize = community.followings(5_000).map(|batch| batch.len()).sum();
        assert_eq!(follows, community.follows());
        // The most active has twice what the next one has, the less active half is quiet.
        assert!(community.counts[0] / community.counts[1] == 2 && community.counts[199] >= 2);
        let newest = |rank: usize| community.posts_of(rank)[0].published_at.expect("an instant");
        let quiet = community.now.plus(-QUIET_MS);
        assert!((100..200).all(|rank| newest(rank) <= quiet && newest(rank) > quiet.plus(-HOUR_MS)));
        let viewer = community.viewer(10_000, Taste::Quiet);
        assert!(viewer.followees.len() == 100 && viewer.followees.iter().all(|rank| *rank >= 100));
    }
}
