//! Posts, pages of feeds and follows on the wire.

use serde::Serialize;
use tidegate::core::Millis;
use tidegate::feed::{Content, End, Item, Post, Reason, UserId, Visibility};
use utoipa::ToSchema;

use super::instant::Instant;

/// A post.
#[derive(Serialize, ToSchema)]
#[schema(as = Post)]
pub(crate) struct PostShape<'a> {
    #[schema(example = "p-1001")]
    post_id: &'a str,
    #[schema(example = "ann")]
    author: &'a str,
    /// What it says; null for a repost.
    body: Option<&'a str>,
    /// Where it stands in time.
    #[schema(inline)]
    published_at: Instant,
    /// Its latest change; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    edited_at: Option<Instant>,
    /// The root that it shows again; absent if it is no repost.
    #[serde(skip_serializing_if = "Option::is_none")]
    repost_of: Option<&'a str>,
    /// `public`, `private` or `hidden`.
    #[schema(example = "public")]
    visibility: &'static str,
    /// Counts its changes from 1.
    #[schema(minimum = 1)]
    version: u64,
}

/// A visibility's name.
pub(crate) fn visibility_name(visibility: Visibility) -> &'static str {
    match visibility {
        Visibility::Public => "public",
        Visibility::Private => "private",
        Visibility::Hidden => "hidden",
    }
}

impl<'a> PostShape<'a> {
    /// Borrows `post`.
    pub(crate) fn new(post: &'a Post) -> Self {
        let (body, repost_of) = match &post.content {
            Content::Body(body) => (Some(body.as_str()), None),
            Content::Repost(root) => (None, Some(root.as_str())),
        };
        Self {
            post_id: post.id.as_str(),
            author: post.author.as_str(),
            body,
            published_at: Instant(post.published_at),
            edited_at: post.edited_at.map(Instant),
            repost_of,
            visibility: visibility_name(post.visibility),
            version: post.version,
        }
    }
}

/// Why a post is in a feed.
#[derive(Serialize, ToSchema)]
#[schema(as = FeedReason)]
pub(crate) struct ReasonShape<'a> {
    /// Who published it, or shows it again.
    user: &'a str,
    /// When.
    #[schema(inline)]
    at: Instant,
    /// The post itself, or the repost.
    post_id: &'a str,
}

impl<'a> ReasonShape<'a> {
    fn new(reason: &'a Reason) -> Self {
        Self { user: reason.user.as_str(), at: Instant(reason.at), post_id: reason.post.as_str() }
    }
}

/// A post in a feed.
#[derive(Serialize, ToSchema)]
#[schema(as = FeedItem)]
pub(crate) struct ItemShape<'a> {
    post: PostShape<'a>,
    /// Where it stands in the feed: at its newest reason.
    #[schema(inline)]
    at: Instant,
    /// The newest first, up to 20.
    reasons: Vec<ReasonShape<'a>>,
    /// How many there are.
    #[schema(minimum = 1)]
    reason_count: usize,
}

impl<'a> ItemShape<'a> {
    /// Borrows `item`.
    pub(crate) fn new(item: &'a Item) -> Self {
        Self {
            post: PostShape::new(&item.root),
            at: Instant(item.place().at),
            reasons: item.reasons.iter().map(ReasonShape::new).collect(),
            reason_count: item.reason_count,
        }
    }
}

/// A page of a feed.
#[derive(Serialize, ToSchema)]
#[schema(as = FeedPage)]
pub(crate) struct FeedShape<'a> {
    pub(crate) items: Vec<ItemShape<'a>>,
    /// Send it as `cursor` for the next page; null at the end.
    pub(crate) next_cursor: Option<String>,
    /// Null while there is a next page; else `complete` (there is nothing beyond) or `window` (there is, but outside of the
    /// days that a feed shows, or of what was asked for).
    pub(crate) end: Option<&'static str>,
}

/// An end's name.
pub(crate) fn end_name(end: End) -> &'static str {
    match end {
        End::Complete => "complete",
        End::Window => "window",
    }
}

/// Whom a user follows.
#[derive(Serialize, ToSchema)]
#[schema(as = Follow)]
pub(crate) struct FollowShape<'a> {
    #[schema(example = "ann")]
    user: &'a str,
    /// Since when.
    #[schema(inline)]
    since: Instant,
}

impl<'a> FollowShape<'a> {
    /// Borrows a follow.
    pub(crate) fn new((user, since): &'a (UserId, Millis)) -> Self {
        Self { user: user.as_str(), since: Instant(*since) }
    }
}
