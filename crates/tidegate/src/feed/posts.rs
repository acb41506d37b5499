//! Posts through a typed cache.

use std::sync::Arc;

use tidegate_backend::feed::{FeedLedger, MAX_FEED_READS, POSTS};
use tidegate_core::Millis;
use tidegate_core::cache::RowVersion;
use tidegate_core::feed::{Body, Content, Post, PostId, StoredPost, UserId, Visibility};

use super::options::{FeedOptions, Result};
use crate::Error;
use crate::cache::{Cache, CacheError, Caches, Codec, CodecError, LoadContext, Loaded, Loader, Read, Ttl};

/// Of [`StoredPost`], as [`Rows`] writes it.
const SCHEMA: u32 = 1;
/// Longest post as it is stored: a body and what stands beside it.
const MAX_STORED: usize = tidegate_core::feed::MAX_BODY_BYTES + 1_024;

/// Posts by their names.
pub(super) type Posts = Cache<PostId, StoredPost>;

/// Opens the cache of posts. `hears`: whether all that changes them is told to these caches.
pub(super) fn open(
    caches: &Caches,
    ledger: Arc<dyn FeedLedger>,
    options: &FeedOptions,
    hears: bool,
) -> std::result::Result<Posts, CacheError> {
    let mut builder = caches
        .cache::<PostId, StoredPost>(POSTS)
        .codec(Rows)
        .schema(SCHEMA)
        .fresh_for(options.post_for)
        .absent_for(options.absent_for)
        .max_value(MAX_STORED);
    builder = match (hears, options.post_cache_bytes) {
        (true, Some(bytes)) => builder.local(bytes, Ttl::seconds::<60>()),
        (true, None) => builder,
        (false, _) => builder.no_local().hot_keys(0),
    };
    builder.loader(FromLedger { ledger, hears })
}

/// Loads posts from the ledger, many at once.
struct FromLedger {
    ledger: Arc<dyn FeedLedger>,
    hears: bool,
}

impl FromLedger {
    fn loaded(&self, post: Option<StoredPost>) -> Loaded<StoredPost> {
        let Some(stored) = post else {
            return if self.hears { Loaded::absent() } else { Loaded::absent().uncached() };
        };
        let version = RowVersion::new(stored.row);
        let loaded = if self.hears { Loaded::value(stored) } else { Loaded::uncacheable(stored) };
        loaded.version(version)
    }
}

impl Loader<PostId, StoredPost> for FromLedger {
    type Error = Error;
    const BATCHES: bool = true;

    async fn load(&self, key: &PostId, _: LoadContext) -> std::result::Result<Loaded<StoredPost>, Error> {
        let mut found = self.ledger.posts(std::slice::from_ref(key)).await?;
        Ok(self.loaded(found.pop().flatten()))
    }

    async fn load_many(&self, keys: &[PostId], _: LoadContext) -> std::result::Result<Vec<Loaded<StoredPost>>, Error> {
        let mut all = Vec::with_capacity(keys.len());
        for part in keys.chunks(MAX_FEED_READS) {
            all.extend(self.ledger.posts(part).await?.into_iter().map(|post| self.loaded(post)));
        }
        Ok(all)
    }
}

/// Reads many, in order; any error is one of all.
pub(super) async fn get_many(posts: &Posts, ids: &[PostId]) -> Result<Vec<Read<StoredPost>>> {
    Ok(posts.get_many(ids).await.into_iter().collect::<std::result::Result<_, _>>()?)
}

/// Posts as bytes: fixed fields, then texts with their lengths.
pub(super) struct Rows;

impl Codec<StoredPost> for Rows {
    fn number(&self) -> u8 {
        3
    }

    fn encode(&self, stored: &StoredPost) -> std::result::Result<Vec<u8>, CodecError> {
        let post = &stored.post;
        let (kind, text) = match &post.content {
            Content::Body(body) => (0_u8, body.as_str()),
            Content::Repost(root) => (1, root.as_str()),
        };
        let mut to = Vec::with_capacity(80 + post.id.as_str().len() + post.author.as_str().len() + text.len());
        let seen = match post.visibility {
            Visibility::Public => 0_u8,
            Visibility::Private => 1,
            Visibility::Hidden => 2,
        };
        to.extend([kind, seen, u8::from(post.edited_at.is_some())]);
        for number in [post.published_at.0, post.edited_at.map_or(0, |at| at.0)] {
            to.extend(number.to_le_bytes());
        }
        for number in [post.version, stored.row, stored.reposts] {
            to.extend(number.to_le_bytes());
        }
        to.extend(post.digest.to_le_bytes());
        for text in [post.id.as_str(), post.author.as_str(), text] {
            to.extend(u32::try_from(text.len())?.to_le_bytes());
            to.extend(text.as_bytes());
        }
        Ok(to)
    }

    fn decode(&self, bytes: &[u8]) -> std::result::Result<StoredPost, CodecError> {
        read(bytes).ok_or_else(|| "these bytes are no post".into())
    }
}

/// A number of so many bytes, taken off the front.
fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (number, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*number)
}

fn text<'a>(from: &mut &'a [u8]) -> Option<&'a str> {
    let length = usize::try_from(u32::from_le_bytes(take(from)?)).ok()?;
    let (text, rest) = from.split_at_checked(length)?;
    *from = rest;
    std::str::from_utf8(text).ok()
}

fn read(mut from: &[u8]) -> Option<StoredPost> {
    let from = &mut from;
    let [kind, seen, edited] = take::<3>(from)?;
    let published_at = Millis(i64::from_le_bytes(take(from)?));
    let edited_at = Millis(i64::from_le_bytes(take(from)?));
    let version = u64::from_le_bytes(take(from)?);
    let row = u64::from_le_bytes(take(from)?);
    let reposts = u64::from_le_bytes(take(from)?);
    let digest = u128::from_le_bytes(take(from)?);
    let id = PostId::parse(text(from)?).ok()?;
    let author = UserId::parse(text(from)?).ok()?;
    let said = text(from)?;
    let content = match kind {
        0 => Content::Body(Body::parse(said).ok()?),
        1 => Content::Repost(PostId::parse(said).ok()?),
        _ => return None,
    };
    let visibility = match seen {
        0 => Visibility::Public,
        1 => Visibility::Private,
        2 => Visibility::Hidden,
        _ => return None,
    };
    let edited_at = (edited == 1).then_some(edited_at);
    let post = Post { id, author, content, published_at, edited_at, visibility, version, digest };
    from.is_empty().then_some(StoredPost { post, row, reposts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(content: Content, edited_at: Option<Millis>, visibility: Visibility) -> StoredPost {
        let id = PostId::parse("p:1").expect("an id");
        let author = UserId::parse("\u{e9}va").expect("a name");
        let post = Post {
            id,
            author,
            content,
            published_at: Millis(-5),
            edited_at,
            visibility,
            version: 7,
            digest: u128::MAX - 3,
        };
        StoredPost { post, row: (1 << 53) - 1, reposts: 9 }
    }

    #[test]
    fn posts_come_back_from_their_bytes_and_nothing_else_does() {
        let long = "x".repeat(tidegate_core::feed::MAX_BODY_BYTES);
        let root = PostId::parse("r").expect("an id");
        for (content, edited, seen) in [
            (Content::Body(Body::parse(&long).expect("a body")), Some(Millis(0)), Visibility::Public),
            (Content::Body(Body::parse("\u{1f30a}").expect("a body")), None, Visibility::Private),
            (Content::Repost(root), Some(Millis(8)), Visibility::Hidden),
        ] {
            let post = stored(content, edited, seen);
            let bytes = Rows.encode(&post).expect("bytes");
            assert!(bytes.len() <= MAX_STORED);
            assert_eq!(Rows.decode(&bytes).expect("a post"), post);
            for end in (0..bytes.len()).step_by(7) {
                assert!(Rows.decode(&bytes[..end]).is_err(), "{end}");
            }
            assert!(Rows.decode(&[&bytes[..], b"x"].concat()).is_err());
        }
    }
}
