-- Queues. low: no task of the queue that is not dead lies before this instant; a look at what is due begins here, behind
-- what was handed out and is not cleaned up yet.
CREATE TABLE IF NOT EXISTS tg_queues (
  queue_no BIGINT AUTO_INCREMENT PRIMARY KEY,
  name VARBINARY(64) NOT NULL,
  low BIGINT NOT NULL,
  UNIQUE INDEX tg_queues_name (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- Tasks. at: when it can be handed out next, or when it died. Instants are milliseconds since 1970. Ids are bytes.
CREATE TABLE IF NOT EXISTS tg_tasks (
  queue_no BIGINT NOT NULL,
  id VARBINARY(128) NOT NULL,
  dead BIGINT NOT NULL,
  leased BIGINT NOT NULL,
  at BIGINT NOT NULL,
  due_at BIGINT NOT NULL,
  attempt BIGINT NOT NULL,
  receipt BIGINT NOT NULL,
  error TEXT,
  payload MEDIUMBLOB NOT NULL,
  PRIMARY KEY (queue_no, id),
  INDEX tg_tasks_order (queue_no, dead, at, id, leased)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
