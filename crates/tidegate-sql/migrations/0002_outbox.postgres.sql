-- What commits made old in caches, until it is delivered and a minute beyond. kind: 0 cache. entry_key: the namespace, a
-- zero byte, the encoded key. The id is random, so that any transaction can write a row. Instants are the server's.

CREATE TABLE tg_outbox (
  id BIGINT PRIMARY KEY,
  kind BIGINT NOT NULL,
  entry_key BYTEA NOT NULL,
  floor BIGINT,
  committed_at BIGINT NOT NULL,
  delivered_at BIGINT
);
CREATE INDEX tg_outbox_waiting ON tg_outbox (kind, committed_at, id) WHERE delivered_at IS NULL;
CREATE INDEX tg_outbox_delivered ON tg_outbox (delivered_at, id) WHERE delivered_at IS NOT NULL;
