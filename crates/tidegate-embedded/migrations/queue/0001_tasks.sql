-- Queues, with the numbers that would be slow to count. last_receipt only grows.
CREATE TABLE queues (
  queue_no INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  live INTEGER NOT NULL,
  dead INTEGER NOT NULL,
  last_receipt INTEGER NOT NULL
);
-- Tasks. payload: NULL when it lies in `payloads`, since a change of a row writes all of it anew. at: when it can be handed out next, or when it died. Instants are milliseconds.
CREATE TABLE tasks (
  queue_no INTEGER NOT NULL,
  id BLOB NOT NULL,
  dead INTEGER NOT NULL,
  leased INTEGER NOT NULL,
  at INTEGER NOT NULL,
  due_at INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  receipt INTEGER NOT NULL,
  error TEXT,
  payload BLOB,
  PRIMARY KEY (queue_no, id)
) WITHOUT ROWID;
CREATE TABLE payloads (
  queue_no INTEGER NOT NULL,
  id BLOB NOT NULL,
  payload BLOB NOT NULL,
  PRIMARY KEY (queue_no, id)
) WITHOUT ROWID;
CREATE INDEX tasks_order ON tasks (queue_no, dead, at, id);
CREATE INDEX tasks_leased ON tasks (queue_no, at) WHERE leased = 1;
