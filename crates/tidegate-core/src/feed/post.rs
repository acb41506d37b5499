//! Posts and reposts, and who sees them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Millis;
use crate::id::{OrderId, SkuId};

/// Longest body, bytes of UTF-8.
pub const MAX_BODY_BYTES: usize = 16_384;

/// A user's name: the rules of a SKU's id, compared byte for byte. Nobody registers it.
pub type UserId = SkuId;

/// A post's name: the rules of an order's id. Names that Tidegate makes are UUIDv7, so they sort by time.
pub type PostId = OrderId;

/// A body: 1 to [`MAX_BODY_BYTES`] bytes without NUL.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Body(Arc<str>);

/// Why a text is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// It is empty.
    Empty,
    /// It is longer than [`MAX_BODY_BYTES`].
    TooLong,
    /// It has a NUL, which not every database stores.
    Nul,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("must not be empty"),
            Self::TooLong => write!(f, "must be at most {MAX_BODY_BYTES} bytes of UTF-8"),
            Self::Nul => f.write_str("must not contain the character NUL"),
        }
    }
}

impl std::error::Error for BodyError {}

impl Body {
    /// Checks `text` and keeps it.
    ///
    /// # Errors
    /// [`BodyError`] names the first rule the text breaks.
    pub fn parse(text: &str) -> Result<Self, BodyError> {
        if text.is_empty() {
            return Err(BodyError::Empty);
        }
        if text.len() > MAX_BODY_BYTES {
            return Err(BodyError::TooLong);
        }
        if text.bytes().any(|b| b == 0) {
            return Err(BodyError::Nul);
        }
        Ok(Self(text.into()))
    }

    /// The text, exactly as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Body {
    type Error = BodyError;
    fn try_from(text: String) -> Result<Self, BodyError> {
        Self::parse(&text)
    }
}

impl From<Body> for String {
    fn from(body: Body) -> Self {
        body.0.as_ref().to_owned()
    }
}

/// Who sees a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Visibility {
    /// Everybody.
    #[default]
    Public,
    /// Its author alone.
    Private,
    /// Nobody.
    Hidden,
}

/// What a post says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Content {
    /// A text of its own: a root.
    Body(Body),
    /// A root of somebody's, shown again.
    Repost(PostId),
}

/// A post as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// Its name.
    pub id: PostId,
    /// Who wrote it.
    pub author: UserId,
    /// What it says.
    pub content: Content,
    /// Where it stands in time; never after the instant at which it was accepted.
    pub published_at: Millis,
    /// Its latest change, if there was one.
    pub edited_at: Option<Millis>,
    /// Who sees it.
    pub visibility: Visibility,
    /// Counts its changes from 1.
    pub version: u64,
    /// Of the request that made it: [`digest`].
    pub digest: u128,
}

impl Post {
    /// The root that it shows: itself, if it is no repost.
    #[must_use]
    pub fn root(&self) -> &PostId {
        match &self.content {
            Content::Body(_) => &self.id,
            Content::Repost(root) => root,
        }
    }
}

/// A post to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPost {
    /// Its name.
    pub id: PostId,
    /// Who writes it.
    pub author: UserId,
    /// What it says. A repost of a repost becomes one of its root.
    pub content: Content,
    /// Where it stands in time; `None`: now. The future becomes now.
    pub published_at: Option<Millis>,
    /// Who sees it.
    pub visibility: Visibility,
}

/// A change of a post; what is `None` stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PostEdit {
    /// Another body. A repost has none.
    pub body: Option<Body>,
    /// Who sees it from now on.
    pub visibility: Option<Visibility>,
}

/// What a request to publish said, as a number: a repeat of the same request is known by it, also after the post was
/// edited. XXH3, 128 bits; no secret, and no defence against an author who wants two of his own requests to look the same.
#[must_use]
pub fn digest(new: &NewPost) -> u128 {
    let mut bytes = Vec::with_capacity(256);
    let mut field = |tag: u8, value: &[u8]| {
        bytes.push(tag);
        bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
        bytes.extend_from_slice(value);
    };
    field(1, new.author.as_str().as_bytes());
    match &new.content {
        Content::Body(body) => field(2, body.as_str().as_bytes()),
        Content::Repost(of) => field(3, of.as_str().as_bytes()),
    }
    if let Some(at) = new.published_at {
        field(4, &at.0.to_le_bytes());
    }
    field(5, &[new.visibility as u8]);
    xxhash_rust::xxh3::xxh3_128(&bytes)
}

/// Whether `viewer` sees a post, as far as its own visibility decides. A block between viewer and author comes on top.
#[must_use]
pub fn is_visible(viewer: &UserId, author: &UserId, visibility: Visibility) -> bool {
    match visibility {
        Visibility::Public => true,
        Visibility::Private => viewer == author,
        Visibility::Hidden => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies() {
        assert!(Body::parse("x").is_ok() && Body::parse(&"x".repeat(MAX_BODY_BYTES)).is_ok());
        assert_eq!(Body::parse(""), Err(BodyError::Empty));
        assert_eq!(Body::parse(&"x".repeat(MAX_BODY_BYTES + 1)), Err(BodyError::TooLong));
        assert_eq!(Body::parse("a\0b"), Err(BodyError::Nul));
    }

    #[test]
    fn a_digest_tells_every_field_apart() {
        let id = |text: &str| PostId::parse(text).expect("an id");
        let new = NewPost {
            id: id("p"),
            author: UserId::parse("ann").expect("a name"),
            content: Content::Body(Body::parse("q").expect("a body")),
            published_at: None,
            visibility: Visibility::Public,
        };
        let others = [
            NewPost { author: UserId::parse("bob").expect("a name"), ..new.clone() },
            NewPost { content: Content::Body(Body::parse("r").expect("a body")), ..new.clone() },
            NewPost { content: Content::Repost(id("q")), ..new.clone() },
            NewPost { published_at: Some(Millis(0)), ..new.clone() },
            NewPost { visibility: Visibility::Private, ..new.clone() },
        ];
        let mut digests: Vec<u128> = others.iter().chain([&new]).map(digest).collect();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), 6);
        assert_eq!(digest(&NewPost { id: id("other"), ..new.clone() }), digest(&new), "the name is not content");
    }
}
