-- The feed. Names are bytes: no collation folds them. Versions: tidegate_core::feed::change. Instants are milliseconds since
-- 1970, of the ledger's clock.

-- followees: how many rows of feed_follows are his. leaving: the version of his posts at which he was deleted, while something
-- of him is left. A row of zeros holds a name for the transaction that has made it.
CREATE TABLE feed_users (
  name BYTEA PRIMARY KEY,
  posts BIGINT NOT NULL,
  ties BIGINT NOT NULL,
  followees BIGINT NOT NULL,
  leaving BIGINT
);

-- A root has a body, a repost has a root. visibility: 0 public, 1 private, 2 hidden. made: the version that its author's posts
-- had when it was published. digest: of the request that made it, the larger end first. An author's set is read from the
-- index feed_posts_author alone.
CREATE TABLE feed_posts (
  id BYTEA PRIMARY KEY,
  author BYTEA NOT NULL,
  root BYTEA,
  published_at BIGINT NOT NULL,
  edited_at BIGINT,
  visibility BIGINT NOT NULL,
  version BIGINT NOT NULL,
  row_version BIGINT NOT NULL,
  reposts BIGINT NOT NULL,
  made BIGINT NOT NULL,
  digest BYTEA NOT NULL,
  body TEXT
);
CREATE INDEX feed_posts_author ON feed_posts (author, published_at, id, root);
CREATE UNIQUE INDEX feed_posts_root ON feed_posts (root, author) WHERE root IS NOT NULL;

CREATE TABLE feed_follows (
  follower BYTEA NOT NULL,
  followee BYTEA NOT NULL,
  since BIGINT NOT NULL,
  PRIMARY KEY (follower, followee)
);
CREATE INDEX feed_follows_followee ON feed_follows (followee, follower);

CREATE TABLE feed_blocks (
  blocker BYTEA NOT NULL,
  blocked BYTEA NOT NULL,
  PRIMARY KEY (blocker, blocked)
);
CREATE INDEX feed_blocks_blocked ON feed_blocks (blocked, blocker);
