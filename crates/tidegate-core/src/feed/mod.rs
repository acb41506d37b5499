//! The feed: what the people a user follows posted, newest first.
//!
//! - [`post`]: posts, reposts, who sees them; [`place`]: their order in time, and the part of it that a page may show.
//! - [`scope`]: what a feed shows at all.
//! - [`page`]: what is asked of a feed and what comes back; how an entry of an author's set becomes an item of a page.
//! - [`walk`]: which sets of which authors a page needs (Fagin's threshold algorithm), without doing any I/O.
//! - [`engine`]: what a batch of commands does to the ledger's rows. [`change`]: what stores are told of it; [`copy`]: what
//!   they make of that.
//! - [`table`]: those rows in memory.
//! - [`model`]: a whole community in memory: the meaning of every operation, and what every store is held against.

pub mod change;
pub mod copy;
pub mod engine;
pub mod model;
pub mod page;
pub mod place;
pub mod post;
#[cfg(test)]
mod rows_tests;
pub mod scope;
pub mod table;
#[cfg(test)]
mod tests;
pub mod walk;

pub use change::{AuthorSet, Change, Entry, Fill, Head, Repost, Subject, Ties, Version, What, first_version};
pub use copy::{MAX_REPOSTS, MAX_SET, MAX_WHOLE_REPOSTS, Reposts, SetPart};
pub use engine::{Command, Decision, Outcome, Rows, StoredPost, UserRow, Wants, Writes, decide};
pub use page::{
    Ask, Cursor, CursorExpired, End, Item, MAX_PAGE_ITEMS, MAX_SHOWN_REASONS, Page, Reason, item_of, reasons_within,
};
pub use place::{Edge, Order, Place, Range, WINDOW_MS};
pub use post::{
    Body, BodyError, Content, MAX_BODY_BYTES, NewPost, Post, PostEdit, PostId, UserId, Visibility, digest, is_visible,
};
pub use scope::{MAX_RECENT, Recent, Scope};
pub use table::Table;
pub use walk::{Step, Walk, Want};

/// Most users that one follows, unless the settings say otherwise.
pub const DEFAULT_MAX_FOLLOWEES: usize = 20_000;
