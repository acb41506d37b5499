-- The newest fence of each lock that was sealed: who has a smaller one is refused. name: the lock's. owner: a hash of the
-- grant's token. Instants are the server's.

CREATE TABLE IF NOT EXISTS tg_fences (
  name VARBINARY(128) PRIMARY KEY,
  fence BIGINT NOT NULL,
  owner BIGINT NOT NULL,
  sealed_at BIGINT NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
