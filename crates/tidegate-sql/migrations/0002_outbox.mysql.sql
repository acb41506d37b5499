-- What commits made old in caches, until it is delivered and a minute beyond. kind: 0 cache. entry_key: the namespace, a
-- zero byte, the encoded key. The id is random, so that any transaction can write a row. Instants are the server's.

CREATE TABLE IF NOT EXISTS tg_outbox (
  id BIGINT PRIMARY KEY,
  kind BIGINT NOT NULL,
  entry_key VARBINARY(1100) NOT NULL,
  floor BIGINT,
  committed_at BIGINT NOT NULL,
  delivered_at BIGINT,
  INDEX tg_outbox_waiting (kind, delivered_at, committed_at, id),
  INDEX tg_outbox_delivered (delivered_at, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
