//! The bodies of the feed.

use tidegate::feed::{MAX_BODY_BYTES, MAX_FEED_POSTS};

use super::{Field, Kind, Shape};

/// Most follows of a batch.
pub(crate) const MAX_BATCH_FOLLOWS: usize = 5_000;

/// Who sees a post.
pub(crate) const VISIBILITIES: &[&str] = &["public", "private", "hidden"];

const POST_ID: Field = Field::optional(
    "post_id",
    Kind::OrderId,
    "The caller's id for it: makes a repeat harmless. Left out, the server makes one (UUIDv7).",
);
const BODY: Field = Field::optional(
    "body",
    Kind::Text(MAX_BODY_BYTES),
    "What it says: 1 to 16,384 bytes of UTF-8 without NUL. This or `repost_of`, exactly one.",
);
const PUBLISHED_AT: Field = Field::optional(
    "published_at",
    Kind::Instant,
    "Where it stands in time; left out, now. The future becomes now, and is shown so.",
);
const REPOST_OF: Field = Field::optional(
    "repost_of",
    Kind::OrderId,
    "The post that it shows again; of a repost, its root. This or `body`, exactly one.",
);
const VISIBILITY: Field = Field::optional(
    "visibility",
    Kind::Choice(VISIBILITIES),
    "Who sees it: everybody (`public`, the default), its author alone (`private`), nobody (`hidden`).",
);

pub(crate) static PUBLISH: Shape = Shape {
    name: "PublishPost",
    doc: "A post, or a repost of one.",
    example: r#"{"post_id": "p-1001", "body": "The kettle is on."}"#,
    fields: &[POST_ID, BODY, PUBLISHED_AT, REPOST_OF, VISIBILITY],
};

pub(crate) static PUBLISH_ITEM: Shape = Shape {
    name: "PublishPostItem",
    doc: "A post of a batch.",
    example: r#"{"author": "ann", "post_id": "p-1001", "body": "The kettle is on."}"#,
    fields: &[
        Field::required("author", Kind::Label, "Who writes it."),
        POST_ID,
        BODY,
        PUBLISHED_AT,
        REPOST_OF,
        VISIBILITY,
    ],
};

pub(crate) static PUBLISH_BATCH: Shape = Shape {
    name: "PublishPosts",
    doc: "Posts to publish, in order; each stands alone.",
    example: r#"{"posts": [{"author": "ann", "post_id": "p-1001", "body": "The kettle is on."}]}"#,
    fields: &[Field::required("posts", Kind::List(&PUBLISH_ITEM, 1, MAX_FEED_POSTS), "The posts.")],
};

pub(crate) static EDIT_POST: Shape = Shape {
    name: "EditPost",
    doc: "What changes of a post; what is left out stays.",
    example: r#"{"body": "The kettle was on.", "visibility": "private"}"#,
    fields: &[
        Field::optional("body", Kind::Text(MAX_BODY_BYTES), "Another body; a repost has none."),
        Field::optional("visibility", Kind::Choice(VISIBILITIES), "Who sees it from now on."),
    ],
};

pub(crate) static FOLLOW_ITEM: Shape = Shape {
    name: "FollowItem",
    doc: "Who follows whom.",
    example: r#"{"user": "bob", "other": "ann"}"#,
    fields: &[
        Field::required("user", Kind::Label, "Who."),
        Field::required("other", Kind::Label, "Whom."),
        Field::optional("since", Kind::Instant, "Since when; left out, now. The future becomes now."),
    ],
};

pub(crate) static FOLLOW_BATCH: Shape = Shape {
    name: "FollowUsers",
    doc: "Follows, in order; each stands alone.",
    example: r#"{"follows": [{"user": "bob", "other": "ann"}]}"#,
    fields: &[Field::required("follows", Kind::List(&FOLLOW_ITEM, 1, MAX_BATCH_FOLLOWS), "The follows.")],
};
