//! The page that a plain join makes: what `tidegate bench feed` compares with.

use tidegate_backend::stored::feed::cut;
use tidegate_backend::{BoxFuture, Result};
use tidegate_core::feed::{Ask, Content, Order, Place, Post};

use super::load;
use crate::sqlite::SqliteLedger;

/// How many columns a post has.
const COLUMNS: usize = 12;
/// The index that such a query wants beside those of the feed.
const INDEX: &str = "CREATE INDEX IF NOT EXISTS feed_posts_time ON feed_posts (published_at, id); ANALYZE";

impl SqliteLedger {
    /// Makes the index that [`SqliteLedger::page_by_join`] needs, and tells the planner what the tables hold.
    ///
    /// # Errors
    /// As any write.
    pub fn prepare_join(&self) -> BoxFuture<'_, Result<()>> {
        self.write(|writer| writer.transact(|conn| conn.execute_batch(INDEX)))
    }

    /// The newest posts of those whom `ask.viewer` follows, by one join of posts and follows, ordered and cut by keyset, as
    /// an application without Tidegate would ask for them; with the roots of reposts. It does less than a page: no own
    /// posts, no blocks, only the public, a root again for each repost; and only the newest first.
    ///
    /// # Errors
    /// As any read.
    pub fn page_by_join(&self, ask: &Ask) -> BoxFuture<'_, Result<Vec<(Place, Post)>>> {
        debug_assert_eq!(ask.order, Order::Newest, "the peer reads one way");
        let now = self.clock.now();
        let ask = ask.clone();
        self.read(move |conn| {
            let Ok((range, begin)) = ask.range(now) else { return Ok(Vec::new()) };
            let (at, post, _) = cut(&begin);
            let of = |table: &str| {
                let columns = load::POST_COLUMNS.split(", ").map(|column| format!("{table}.{column}"));
                columns.collect::<Vec<_>>().join(", ")
            };
            let sql = format!(
                "SELECT {}, {} FROM feed_follows f \
                JOIN feed_posts p ON p.author = f.followee LEFT JOIN feed_posts r ON r.id = p.root \
                WHERE f.follower = ?1 AND p.published_at >= ?2 AND (p.published_at, p.id) < (?3, ?4) \
                AND p.visibility = 0 AND (p.root IS NULL OR r.visibility = 0) \
                ORDER BY p.published_at DESC, p.id DESC LIMIT ?5",
                of("p"),
                of("r")
            );
            let viewer = ask.viewer.as_str().as_bytes();
            let mut select = conn.prepare_cached(&sql)?;
            let rows = select.query_map((viewer, range.low.0, at.0, post, ask.limit as i64), |r| {
                let shown = load::post(r)?.0.post;
                let place = Place { at: shown.published_at, post: shown.id.clone() };
                match shown.content {
                    Content::Body(_) => Ok((place, shown)),
                    Content::Repost(_) => Ok((place, load::post_at(r, COLUMNS)?.0.post)),
                }
            })?;
            rows.collect()
        })
    }
}
