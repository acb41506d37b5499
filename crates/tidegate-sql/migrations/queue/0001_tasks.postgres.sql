-- Queues. low: no task of the queue that is not dead lies before this instant; a look at what is due begins here, behind
-- what was handed out and is not cleaned up yet.
CREATE TABLE tg_queues (
  queue_no BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name BYTEA NOT NULL UNIQUE,
  low BIGINT NOT NULL
) WITH (fillfactor = 50);

-- Tasks. at: when it can be handed out next, or when it died. Instants are milliseconds since 1970. Long payloads lie apart,
-- so a claim does not write them anew; ids are bytes.
CREATE TABLE tg_tasks (
  queue_no BIGINT NOT NULL,
  id BYTEA NOT NULL,
  dead BIGINT NOT NULL,
  leased BIGINT NOT NULL,
  at BIGINT NOT NULL,
  due_at BIGINT NOT NULL,
  attempt BIGINT NOT NULL,
  receipt BIGINT NOT NULL,
  error TEXT,
  payload BYTEA NOT NULL,
  PRIMARY KEY (queue_no, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX tg_tasks_order ON tg_tasks (queue_no, dead, at, id, leased);
