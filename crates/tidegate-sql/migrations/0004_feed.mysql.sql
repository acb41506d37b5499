-- The feed. Names are bytes: no collation folds them. Versions: tidegate_core::feed::change. Instants are milliseconds since
-- 1970, of the ledger's clock.

-- followees: how many rows of feed_follows are his. leaving: the version of his posts at which he was deleted, while something
-- of him is left. A row of zeros holds a name for the transaction that has made it.
CREATE TABLE IF NOT EXISTS feed_users (
  name VARBINARY(128) PRIMARY KEY,
  posts BIGINT NOT NULL,
  ties BIGINT NOT NULL,
  followees BIGINT NOT NULL,
  leaving BIGINT
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- A root has a body, a repost has a root. visibility: 0 public, 1 private, 2 hidden. made: the version that its author's posts
-- had when it was published. digest: of the request that made it, the larger end first. An author's set is read from the
-- index feed_posts_author alone.
CREATE TABLE IF NOT EXISTS feed_posts (
  id VARBINARY(64) PRIMARY KEY,
  author VARBINARY(128) NOT NULL,
  root VARBINARY(64),
  published_at BIGINT NOT NULL,
  edited_at BIGINT,
  visibility BIGINT NOT NULL,
  version BIGINT NOT NULL,
  row_version BIGINT NOT NULL,
  reposts BIGINT NOT NULL,
  made BIGINT NOT NULL,
  digest VARBINARY(16) NOT NULL,
  body LONGTEXT,
  INDEX feed_posts_author (author, published_at, id, root),
  UNIQUE INDEX feed_posts_root (root, author)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS feed_follows (
  follower VARBINARY(128) NOT NULL,
  followee VARBINARY(128) NOT NULL,
  since BIGINT NOT NULL,
  PRIMARY KEY (follower, followee),
  INDEX feed_follows_followee (followee, follower)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS feed_blocks (
  blocker VARBINARY(128) NOT NULL,
  blocked VARBINARY(128) NOT NULL,
  PRIMARY KEY (blocker, blocked),
  INDEX feed_blocks_blocked (blocked, blocker)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
