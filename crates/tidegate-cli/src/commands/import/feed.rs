//! Follows and posts: the columns of their files, and what a row of CSV says.

use serde_json::{Map, Value};

use super::rows::{Cells, Layout};

/// What a file of follows holds.
pub static FOLLOWS: Layout = Layout {
    columns: &["user", "other", "since"],
    read_only: &[],
    required: "other",
    from_cells: |cells| texts(cells, FOLLOWS.columns, &["user", "other"]),
};

/// What a file of posts holds.
pub static POSTS: Layout = Layout {
    columns: &["author", "post_id", "body", "published_at", "repost_of", "visibility"],
    read_only: &["version", "edited_at"],
    required: "author",
    from_cells: |cells| texts(cells, POSTS.columns, &["author"]),
};

fn texts(cells: &Cells<'_>, columns: &[&str], required: &[&str]) -> Result<Map<String, Value>, String> {
    match required.iter().find(|name| cells.get(name).is_none()) {
        Some(name) => Err(format!("the column {name:?} is empty")),
        None => Ok(cells.texts(columns)),
    }
}
