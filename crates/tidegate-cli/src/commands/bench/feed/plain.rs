//! What is written first: read the newest of every followee's set in one pipeline, merge, and get the posts.
//!
//! Its keys are its own: a sorted set for each author, scored by instant, as many entries as ours have; a post is a string.

use std::collections::HashMap;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tidegate::bare_redis::BareAnswer;
use tidegate::core::Millis;
use tidegate::core::feed::MAX_SET;
use tidegate::feed::{Content, NewPost, Post, PostId, UserId};

use super::community::{Community, Viewer};
use super::{PAGE, broken};
use crate::commands::bench::redis::Redis;
use crate::failure::Result;

/// Commands sent together while it is filled, and pipelines on their way.
const TOGETHER: usize = 1_000;
const PIPELINES: usize = 4;

/// A post as it came back, whoever gave it.
#[derive(Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its name.
    id: PostId,
    /// Who wrote it, when, and what.
    author: String,
    at: Millis,
    body: String,
}

impl Shown {
    /// The same of a post of ours.
    pub fn of(post: &Post) -> Self {
        let body = match &post.content {
            Content::Body(body) => body.as_str().to_owned(),
            Content::Repost(root) => root.to_string(),
        };
        Self { id: post.id.clone(), author: post.author.to_string(), at: post.published_at, body }
    }
}

/// The peer.
pub struct Plain {
    redis: Redis,
    name: String,
    /// Keys of the sets of those whom each viewer follows.
    sets: HashMap<UserId, Vec<Vec<u8>>>,
    /// Bytes that the server used more once it was filled.
    pub bytes: u64,
}

impl Plain {
    /// Fills its keys.
    ///
    /// # Errors
    /// As [`Redis::open_patiently`].
    pub async fn fill(url: &str, name: &str, community: &Community) -> Result<Self> {
        let redis = Redis::open_patiently(url, name).await?;
        let before = redis.used_memory().await?;
        let commands = (0..community.authors.len()).flat_map(|rank| {
            let posts = community.posts_of(rank);
            posts.into_iter().take(MAX_SET).flat_map(|post| {
                let at = post.published_at.unwrap_or(Millis(0));
                let set = vec![
                    b"ZADD".to_vec(),
                    set_key(name, &post.author),
                    at.0.to_string().into_bytes(),
                    post.id.as_str().as_bytes().to_vec(),
                ];
                [set, vec![b"SET".to_vec(), post_key(name, post.id.as_str()), stored(&post, at)]]
            })
        });
        let send = |commands: Vec<Vec<Vec<u8>>>| {
            let redis = &redis;
            async move {
                let commands: Vec<Vec<&[u8]>> =
                    commands.iter().map(|parts| parts.iter().map(Vec::as_slice).collect()).collect();
                redis.bare.ask_all(&commands).await.map(drop).map_err(broken)
            }
        };
        stream::iter(commands).chunks(TOGETHER).map(send).buffer_unordered(PIPELINES).try_collect::<()>().await?;
        let sets = community.everybody().map(|viewer| (viewer.name.clone(), set_keys(name, community, viewer)));
        let sets = sets.collect();
        let bytes = redis.used_memory().await?.saturating_sub(before);
        Ok(Self { redis, name: name.to_owned(), sets, bytes })
    }

    /// A first page.
    ///
    /// # Errors
    /// [`crate::failure::Failure::Work`].
    pub async fn page(&self, viewer: &UserId) -> Result<Vec<Shown>> {
        let Some(keys) = self.sets.get(viewer) else { return Ok(Vec::new()) };
        // One more, so that it is known whether there is a further page.
        let newest = PAGE.to_string();
        let commands: Vec<Vec<&[u8]>> =
            keys.iter().map(|key| vec![&b"ZREVRANGE"[..], key, b"0", newest.as_bytes(), b"WITHSCORES"]).collect();
        let mut entries: Vec<(i64, Vec<u8>)> = Vec::with_capacity(keys.len() * (PAGE + 1));
        for set in self.redis.bare.ask_all(&commands).await.map_err(broken)? {
            let mut values = set.list().into_iter();
            while let (Some(BareAnswer::Bytes(post)), Some(score)) = (values.next(), values.next()) {
                entries.push((instant(&score), post));
            }
        }
        if entries.len() > PAGE + 1 {
            entries.select_nth_unstable_by(PAGE, |a, b| b.cmp(a));
            entries.truncate(PAGE + 1);
        }
        entries.sort_unstable_by(|a, b| b.cmp(a));
        entries.truncate(PAGE);
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<String> = entries.iter().map(|(_, id)| String::from_utf8_lossy(id).into_owned()).collect();
        let keys: Vec<Vec<u8>> = ids.iter().map(|id| post_key(&self.name, id)).collect();
        let mut get: Vec<&[u8]> = vec![b"MGET"];
        get.extend(keys.iter().map(Vec::as_slice));
        let posts = self.redis.bare.ask(&get).await.map_err(broken)?.list();
        ids.iter().zip(posts).map(|(id, post)| shown(id, &post)).collect()
    }

    /// Ends it.
    pub async fn close(self) {
        self.redis.close().await;
    }
}

fn set_keys(name: &str, community: &Community, viewer: &Viewer) -> Vec<Vec<u8>> {
    viewer.followees.iter().map(|rank| set_key(name, &community.authors[*rank])).collect()
}

fn set_key(name: &str, author: &UserId) -> Vec<u8> {
    format!("tg:{name}:plain:a:{author}").into_bytes()
}

fn post_key(name: &str, post: &str) -> Vec<u8> {
    format!("tg:{name}:plain:p:{post}").into_bytes()
}

fn stored(post: &NewPost, at: Millis) -> Vec<u8> {
    let Content::Body(body) = &post.content else { return Vec::new() };
    format!("{}\n{}\n{}", post.author, at.0, body.as_str()).into_bytes()
}

fn instant(score: &BareAnswer) -> i64 {
    match score {
        BareAnswer::Number(number) => *number,
        // Instants are below 2^53.
        other => other.text().parse::<f64>().unwrap_or(0.0) as i64,
    }
}

fn shown(id: &str, post: &BareAnswer) -> Result<Shown> {
    let strange = || broken("a post of the peer is not there");
    let text = post.text();
    let mut lines = text.splitn(3, '\n');
    let (author, at, body) = (lines.next(), lines.next(), lines.next());
    let at = at.and_then(|at| at.parse().ok()).map(Millis).ok_or_else(strange)?;
    let id = PostId::parse(id).map_err(|_| strange())?;
    Ok(Shown { id, author: author.unwrap_or_default().to_owned(), at, body: body.ok_or_else(strange)?.to_owned() })
}
