-- The feed. Names are BLOBs: compared byte for byte. Versions: tidegate_core::feed::change. Instants are milliseconds since 1970,
-- of the ledger's clock.

-- followees: how many rows of feed_follows are his. leaving: the version of his posts at which he was deleted, while something
-- of him is left.
CREATE TABLE feed_users (
  name BLOB PRIMARY KEY,
  posts INTEGER NOT NULL,
  ties INTEGER NOT NULL,
  followees INTEGER NOT NULL,
  leaving INTEGER
) WITHOUT ROWID;

-- A root has a body, a repost has a root. visibility: 0 public, 1 private, 2 hidden. made: the version that its author's posts
-- had when it was published. digest: of the request that made it, the larger end first.
CREATE TABLE feed_posts (
  post_no INTEGER PRIMARY KEY,
  id BLOB NOT NULL UNIQUE,
  author BLOB NOT NULL,
  root BLOB,
  published_at INTEGER NOT NULL,
  edited_at INTEGER,
  visibility INTEGER NOT NULL,
  version INTEGER NOT NULL,
  row_version INTEGER NOT NULL,
  reposts INTEGER NOT NULL,
  made INTEGER NOT NULL,
  digest BLOB NOT NULL,
  body TEXT
);
-- An author's set is read from it alone.
CREATE INDEX feed_posts_author ON feed_posts (author, published_at, id, root);
CREATE UNIQUE INDEX feed_posts_root ON feed_posts (root, author) WHERE root IS NOT NULL;

CREATE TABLE feed_follows (
  follower BLOB NOT NULL,
  followee BLOB NOT NULL,
  since INTEGER NOT NULL,
  PRIMARY KEY (follower, followee)
) WITHOUT ROWID;
CREATE INDEX feed_follows_followee ON feed_follows (followee, follower);

CREATE TABLE feed_blocks (
  blocker BLOB NOT NULL,
  blocked BLOB NOT NULL,
  PRIMARY KEY (blocker, blocked)
) WITHOUT ROWID;
CREATE INDEX feed_blocks_blocked ON feed_blocks (blocked, blocker);
