//! What publishing costs, by how many follow.

use std::time::Instant;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tidegate::feed::{Command, MAX_FEED_COMMANDS, Published, UserId};

use super::community::{Community, user};
use super::node::{How, ask, ids, timed};
use super::{Times, World, broken};
use crate::commands::bench::line::Line;
use crate::failure::Result;

/// Followers of each author.
const FOLLOWERS: [u64; 3] = [0, 10_000, 20_000];
/// Posts of each.
const POSTS: u64 = 300;

struct Star {
    name: UserId,
    followers: u64,
    times: Times,
    calls: u64,
    applied_us: u64,
    last: Option<tidegate::feed::PostId>,
}

fn fan(n: u64) -> UserId {
    user(&format!("fan-{n:05}"))
}

/// Authors by turns publish a post each.
pub async fn publish(world: &mut World<'_, '_>) -> Result {
    let mut stars: Vec<Star> = Vec::new();
    for followers in FOLLOWERS {
        let followers = if followers == 0 { 0 } else { world.bench.scaled(followers, 100) };
        let name = user(&format!("star-{followers}-{}", stars.len()));
        let star = Star { name, followers, times: Times::new(), calls: 0, applied_us: 0, last: None };
        let follow = |n| Command::Follow { user: fan(n), other: star.name.clone(), since: None };
        let all: Vec<Command> = (0..followers).map(follow).collect();
        world.truth.commit_all(all.chunks(MAX_FEED_COMMANDS).map(<[Command]>::to_vec)).await?;
        stars.push(star);
    }
    let node = world.node(How::Default).await?;
    let nobody = user("reader-of-nobody");
    timed(&node.feed, &ask(&nobody)).await?;
    let mut chance = StdRng::seed_from_u64(7);
    for _ in 0..world.scaled(POSTS, 10) {
        for star in &mut stars {
            let new = Community::fresh(&star.name, node.feed.now(), &mut chance)?;
            let (calls, applied) = (node.store.calls(), node.store.applied_us());
            let id = new.id.clone();
            let began = Instant::now();
            let published = node.feed.publish(new).await.map_err(broken)?;
            star.times.add(began.elapsed());
            if !matches!(published, Published::New(_)) {
                return Err(broken(format!("a post was not published: {published:?}")));
            }
            star.calls += node.store.calls() - calls;
            star.applied_us += node.store.applied_us() - applied;
            star.last = Some(id);
        }
    }
    for star in &stars {
        if star.followers > 0 {
            let reader = fan(star.followers - 1);
            let (page, _, _) = timed(&node.feed, &ask(&reader)).await?;
            if !ids(&page).iter().any(|id| star.last.as_ref() == Some(id)) {
                return Err(broken("a follower does not see the newest post"));
            }
        }
    }
    node.close().await;
    let name = world.truth.name();
    for star in &stars {
        let label = format!("publish on {name}, {} followers", star.followers);
        let line = Line::new(label.clone(), star.times.rate(), "posts/s");
        world.line(line.times(star.times.percentiles()))?;
        let posts = star.times.record.len() as f64;
        let what = format!("{label}: round trips to Redis after the commit");
        world.line(Line::new(what, star.calls as f64 / posts, "a post"))?;
        let what = format!("{label}: of that time in Redis, mean");
        world.line(Line::new(what, star.applied_us as f64 / posts / 1_000.0, "ms"))?;
    }
    Ok(())
}
