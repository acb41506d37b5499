//! The page that a plain join makes: what `tidegate bench feed` compares with.

use tidegate_backend::stored::feed::cut;
use tidegate_backend::{BoxFuture, Result};
use tidegate_core::feed::{Ask, Content, Order, Place, Post};

use super::load::{self, POST_COLUMNS, post_columns};
use crate::SqlLedger;
use crate::connect::STATEMENT_BOUND;
use crate::dialect::Dialect;
use crate::fault;
use crate::session::Session;
use crate::value::Value;

/// How long the index may take.
const INDEX_BOUND: std::time::Duration = STATEMENT_BOUND.saturating_mul(60);

impl SqlLedger {
    /// Makes the index that [`SqlLedger::page_by_join`] wants beside those of the feed, and tells the planner what the tables
    /// hold.
    ///
    /// # Errors
    /// As any write.
    pub fn prepare_join(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let parts = self.parts()?;
            let mut lease = parts.audits.get().await?;
            Ok(prepare(&mut lease).await?)
        })
    }

    /// The newest posts of those whom `ask.viewer` follows, by one join of posts and follows, ordered and cut by keyset, as
    /// an application without Tidegate would ask for them; with the roots of reposts. It does less than a page: no own
    /// posts, no blocks, only the public, a root again for each repost; and only the newest first.
    ///
    /// # Errors
    /// As any read.
    pub fn page_by_join<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Result<Vec<(Place, Post)>>> {
        debug_assert_eq!(ask.order, Order::Newest, "the peer reads one way");
        let now = tidegate_backend::Ledger::clock(self).now();
        read!(self, session => page(session, ask, now))
    }
}

async fn prepare(session: &mut Session) -> fault::Result<()> {
    let (there, make, analyze) = match session.dialect() {
        Dialect::MySql => (
            "SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE() AND index_name = 'feed_posts_time' LIMIT 1",
            "CREATE INDEX feed_posts_time ON feed_posts (published_at, id)",
            "ANALYZE TABLE feed_posts, feed_follows",
        ),
        Dialect::Postgres => (
            "SELECT 1 FROM pg_indexes WHERE schemaname = current_schema() AND indexname = 'feed_posts_time'",
            "CREATE INDEX feed_posts_time ON feed_posts (published_at, id)",
            "ANALYZE feed_posts, feed_follows",
        ),
    };
    if session.one(there, &[]).await?.is_none() {
        session.script_within(INDEX_BOUND, make).await?;
    }
    session.script_within(INDEX_BOUND, analyze).await
}

async fn page(session: &mut Session, ask: &Ask, now: tidegate_core::Millis) -> fault::Result<Vec<(Place, Post)>> {
    let Ok((range, begin)) = ask.range(now) else { return Ok(Vec::new()) };
    let (at, post, _) = cut(&begin);
    // MySQL uses no index for pairs; this says the same.
    let older = session
        .dialect()
        .pick("p.published_at <= ? AND (p.published_at < ? OR p.id < ?)", "(p.published_at, p.id) < (?, ?)");
    let sql = format!(
        "SELECT {}, {} FROM feed_follows f \
        JOIN feed_posts p ON p.author = f.followee LEFT JOIN feed_posts r ON r.id = p.root \
        WHERE f.follower = ? AND p.published_at >= ? AND {older} \
        AND p.visibility = 0 AND (p.root IS NULL OR r.visibility = 0) \
        ORDER BY p.published_at DESC, p.id DESC LIMIT ?",
        post_columns("p"),
        post_columns("r")
    );
    let mut values: Vec<Value<'_>> = vec![ask.viewer.as_str().as_bytes().into(), range.low.into(), at.into()];
    if session.dialect() == Dialect::MySql {
        values.push(at.into());
    }
    values.push(post.into());
    values.push((ask.limit as i64).into());
    let rows = session.rows(&sql, &values).await?;
    let shown = rows.iter().map(|row| {
        let shown = load::post(row, 0)?.0.post;
        let place = Place { at: shown.published_at, post: shown.id.clone() };
        match shown.content {
            Content::Body(_) => Ok((place, shown)),
            Content::Repost(_) => Ok((place, load::post(row, POST_COLUMNS.len())?.0.post)),
        }
    });
    shown.collect()
}
