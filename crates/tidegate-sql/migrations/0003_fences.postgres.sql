-- The newest fence of each lock that was sealed: who has a smaller one is refused. name: the lock's. owner: a hash of the
-- grant's token. Instants are the server's.

CREATE TABLE tg_fences (
  name BYTEA PRIMARY KEY,
  fence BIGINT NOT NULL,
  owner BIGINT NOT NULL,
  sealed_at BIGINT NOT NULL
);
