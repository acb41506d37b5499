//! What the copies weigh: Redis is filled with all of the community, step by step.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tidegate::bare_feed::{FeedStore as _, MAX_FEED_READS};
use tidegate::core::feed::copy::KEEP_MS;
use tidegate::core::feed::{Fill, WINDOW_MS};
use tidegate::feed::{FeedLedger as _, UserId};

use super::node::{How, Node, ask, timed};
use super::{World, broken};
use crate::commands::bench::line::Line;
use crate::commands::bench::redis::Redis;
use crate::failure::{Failure, Result};

/// Posts whose weight in the cache is taken.
const POSTS: u64 = 30_000;
/// Readers of posts at once, and subjects of one fill.
const READERS: usize = 64;
const MIB: f64 = 1_048_576.0;

/// Fills everything that can be filled; `print`: what it weighs, and posts in the cache.
pub async fn fill(world: &mut World<'_, '_>, print: bool) -> Result {
    world.bench.printer.step("filling Redis with the copies of everybody");
    let node = world.node(How::NoPosts).await?;
    let redis = Redis::open(&world.bench.url, &world.bench.name).await?;
    // What a process needs for itself is no copy's weight.
    let nobody = super::community::user("reader-of-nobody");
    timed(&node.feed, &ask(&nobody)).await?;
    let empty = redis.used_memory().await?;
    let readers: Vec<UserId> = world.community.everybody().map(|viewer| viewer.name.clone()).collect();
    for some in readers.chunks(16) {
        let ties = node.ledger.ties(some).await.map_err(broken)?;
        let fills = some.iter().cloned().zip(ties).map(|(user, ties)| Fill::User(user, ties));
        taken(&node, fills.collect()).await?;
    }
    let with_ties = redis.used_memory().await?;
    let from = node.feed.now().plus(-(WINDOW_MS + KEEP_MS));
    let began = std::time::Instant::now();
    let mut entries = 0;
    for some in world.community.authors.chunks(MAX_FEED_READS / 4) {
        let sets = node.ledger.authors(some, from).await.map_err(broken)?;
        entries += sets.iter().map(|set| set.entries.len()).sum::<usize>();
        let fills = some.iter().cloned().zip(sets).map(|(author, set)| Fill::Author(author, set));
        taken(&node, fills.collect()).await?;
    }
    let took = began.elapsed().as_secs_f64();
    let with_sets = redis.used_memory().await?;
    if print {
        let (authors, follows) = (world.community.authors.len() as f64, world.community.follows() as f64);
        let line = Line::new(format!("sets of all authors filled, {entries} entries"), authors / took, "authors/s");
        world.line(line)?;
        world.line(Line::new("a followee in the ties of a reader", (with_ties - empty) as f64 / follows, "bytes"))?;
        let sets = with_sets.saturating_sub(with_ties) as f64;
        // What a set weighs without its posts, measured as well: see `empty_sets`.
        let bare = empty_sets(&node, &redis).await?;
        world.line(Line::new("an author without posts", bare, "bytes"))?;
        let entry = (sets - bare * authors).max(0.0) / entries.max(1) as f64;
        world.line(Line::new("a post in its author's set", entry, "bytes"))?;
        world.line(Line::new("an author with all his posts, on average", sets / authors, "bytes"))?;
        posts(world, &node, &redis, with_sets.saturating_sub(empty)).await?;
    }
    redis.close().await;
    node.close().await;
    Ok(())
}

/// All of it must be there.
async fn taken(node: &Node, fills: Vec<Fill>) -> Result {
    let taken = node.store.fill(fills).await.map_err(broken)?;
    if taken.iter().all(|taken| *taken) { Ok(()) } else { Err(broken("Redis did not take a copy")) }
}

/// Bytes of an author without posts.
async fn empty_sets(node: &Node, redis: &Redis) -> Result<f64> {
    const AUTHORS: usize = 2_000;
    let before = redis.used_memory().await?;
    for part in 0..AUTHORS / 100 {
        let names: Vec<UserId> =
            (0..100).map(|n| super::community::user(&format!("nobody-{:05}", part * 100 + n))).collect();
        let sets = node.ledger.authors(&names, node.feed.now()).await.map_err(broken)?;
        taken(node, names.into_iter().zip(sets).map(|(author, set)| Fill::Author(author, set)).collect()).await?;
    }
    Ok(redis.used_memory().await?.saturating_sub(before) as f64 / AUTHORS as f64)
}

/// Posts in the cache, and what all of it comes to.
async fn posts(world: &mut World<'_, '_>, node: &Node, redis: &Redis, copies: u64) -> Result {
    let count = world.scaled(POSTS, 1_000);
    let before = redis.used_memory().await?;
    // Every third author from the end of the first tenth on: neither the most active alone, nor the quiet.
    let ranks = (world.community.authors.len() / 10..world.community.authors.len()).step_by(3);
    let community = &world.community;
    let all = ranks.flat_map(|rank| community.posts_of(rank)).map(|post| post.id).take(count);
    let began = std::time::Instant::now();
    let read = |id| async move {
        let post = node.feed.post(&id).await.map_err(broken)?;
        post.map(drop).ok_or_else(|| broken("a post is missing"))?;
        Ok::<_, Failure>(1_usize)
    };
    let read: usize =
        stream::iter(all).map(read).buffer_unordered(READERS).try_fold(0, async |sum, n| Ok(sum + n)).await?;
    let took = began.elapsed().as_secs_f64();
    let bytes = redis.used_memory().await?.saturating_sub(before);
    let one = bytes as f64 / read.max(1) as f64;
    world.line(Line::new(format!("posts read into the cache, {READERS} at once"), read as f64 / took, "posts/s"))?;
    world.line(Line::new("a post in the cache, 200 to 300 bytes of text", one, "bytes"))?;
    world.line(Line::new("all sets and ties of the community in Redis", copies as f64 / MIB, "MiB"))?;
    let of_all = copies as f64 + one * world.community.posts() as f64;
    let what = "the same with every post of the week in the cache (computed)";
    world.line(Line::new(what, of_all / MIB, "MiB"))
}
