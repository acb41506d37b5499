//! The feed: what the people a user follows posted in the last seven days, newest first. A page costs the same whether he
//! follows fifty or ten thousand, it is exact, and publishing costs the same however many follow.
//!
//! ```text
//! command ─► ledger: one commit ─► caches of posts, then the store: what changed, and the news of it ─► mirror ─► answer
//! page    ─► memory: nothing has happened to it since?
//!            no ─► mirror: who may have the newest posts ─► store: their sets, round by round, with the news ─► posts
//! ```
//!
//! - [`Feed`]: the handle. `commands`: what a commit is told to. `pages`: where a page comes from; `kept`: pages in memory.
//! - `mirror`: what this process knows of authors in short, and of whom its viewers follow; kept true by the news.
//! - `walker`: a walk (`tidegate_core::feed::Walk`) made into a page, wherever its sets come from; `from_store`: the store,
//!   and `fills` what that lacks; `direct`: the ledger alone.
//! - `posts`: posts through a typed cache. `owed`: what the store was not told yet. `health`: whether it is worth asking.
//!
//! # Why pages are right
//!
//! Every author, every user's ties and every root's reposts have a version in the ledger. A page begins with versions: of
//! heads that the mirror knows, raised by the news that its first round brings. A set that the store has at an older version
//! than the mirror knows, or than this process owes the store, is not believed but read from the ledger. Heads are upper
//! bounds, so the walk reads every set that can matter. Posts that changed leave this process' copies before it is known
//! that something happened to their author, and other caches before the store is told.
//!
//! A reason that is newer than the entry that is judged, and that the walk has passed without meeting it, came in between:
//! the page is begun anew, so that no item is lost between the two places where it may stand.
//!
//! A page in memory is given again if nothing in the log of what happened concerns it: new posts of its sources, posts and
//! roots that it has looked at, its viewer's ties, the passing of time.

mod commands;
mod direct;
mod fills;
mod from_store;
mod handle;
mod health;
mod inner;
mod kept;
mod mirror;
mod options;
mod owed;
mod pages;
mod posts;
mod walker;

pub use handle::{Feed, FeedParts};
pub use options::{FeedError, FeedOptions, FeedStats, PageCost, Result};
pub use tidegate_backend::feed::{FeedLedger, FeedStore, MAX_FEED_COMMANDS, MAX_FEED_POSTS, MAX_FOLLOWS_PAGE};
pub use tidegate_core::feed::model::{Edited, Followed, Published};
pub use tidegate_core::feed::{
    Ask, Body, BodyError, Command, Content, Cursor, End, Item, MAX_BODY_BYTES, MAX_PAGE_ITEMS, MAX_RECENT, NewPost,
    Order, Outcome, Page, Post, PostEdit, PostId, Reason, Recent, Scope, UserId, Visibility,
};
