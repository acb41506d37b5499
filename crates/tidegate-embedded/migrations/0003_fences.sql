-- The newest fence of each lock that was sealed: who has a smaller one is refused. name: the lock's. owner: a hash of the
-- grant's token. Instants are the host's.
CREATE TABLE tg_fences (
  name BLOB PRIMARY KEY,
  fence INTEGER NOT NULL,
  owner INTEGER NOT NULL,
  sealed_at INTEGER NOT NULL
) WITHOUT ROWID;
