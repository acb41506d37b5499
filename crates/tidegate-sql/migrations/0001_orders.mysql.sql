-- Ids, keys and SKUs are bytes: no collation folds them. Instants are milliseconds since 1970. Numbers for names: codec.rs.
-- Statements end with a semicolon at the end of a line; each can be run again, since MySQL cannot undo one.

CREATE TABLE IF NOT EXISTS meta (name VARCHAR(32) PRIMARY KEY, value BIGINT NOT NULL) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- A commit of a batch: its random id tells whether an uncertain COMMIT took place, its number makes order numbers.
CREATE TABLE IF NOT EXISTS batches (
  batch_no BIGINT AUTO_INCREMENT PRIMARY KEY,
  batch_id VARBINARY(16) NOT NULL UNIQUE,
  at BIGINT NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- One row: the newest event's cursor and instant. Changed last in every commit that has events, so cursors have no gap.
CREATE TABLE IF NOT EXISTS counters (name VARCHAR(32) PRIMARY KEY, newest BIGINT NOT NULL, at BIGINT NOT NULL) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT IGNORE INTO counters (name, newest, at) VALUES ('events', 0, 0);

-- Free attributes stand apart: a commit that sells a thousand units rewrites one short row.
CREATE TABLE IF NOT EXISTS skus (
  sku_no BIGINT AUTO_INCREMENT PRIMARY KEY,
  sku VARBINARY(128) NOT NULL UNIQUE,
  on_hand BIGINT NOT NULL,
  held BIGINT NOT NULL,
  sold BIGINT NOT NULL,
  stock_version BIGINT NOT NULL,
  version BIGINT NOT NULL,
  archived BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  title LONGTEXT,
  price BIGINT,
  currency VARBINARY(3),
  hold_seconds BIGINT,
  max_per_order BIGINT,
  max_per_buyer BIGINT,
  buyer_limit_since BIGINT,
  on_sale_from BIGINT,
  CHECK (held >= 0 AND sold >= 0 AND on_hand >= held + sold)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE IF NOT EXISTS sku_attributes (sku_no BIGINT PRIMARY KEY, attributes LONGTEXT NOT NULL) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- All that an order id stands for: an order, a tombstone, and how many payments wait for an order.
CREATE TABLE IF NOT EXISTS order_ids (
  id VARBINARY(64) PRIMARY KEY,
  order_no BIGINT,
  tombstone_at BIGINT,
  loose BIGINT NOT NULL DEFAULT 0,
  INDEX order_ids_tombstone (tombstone_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- status: 0 pending, 1 paid, 2 cancelled, 3 fulfilled. line_items: see codec.rs.
CREATE TABLE IF NOT EXISTS orders (
  order_no BIGINT PRIMARY KEY,
  id VARBINARY(64) NOT NULL,
  buyer_id VARBINARY(128) NOT NULL,
  status BIGINT NOT NULL,
  placed_at BIGINT NOT NULL,
  pay_by BIGINT NOT NULL,
  release_at BIGINT NOT NULL,
  paid_at BIGINT,
  cancelled_at BIGINT,
  cancel_reason BIGINT,
  fulfilled_at BIGINT,
  version BIGINT NOT NULL,
  closed BIGINT NOT NULL,
  last_seq BIGINT NOT NULL,
  payment_count BIGINT NOT NULL,
  requested_hold BIGINT,
  supersedes VARBINARY(64),
  total BIGINT,
  currency VARBINARY(3),
  line_items LONGBLOB NOT NULL,
  metadata LONGTEXT,
  INDEX orders_due (status, release_at, order_no),
  INDEX orders_status (status, order_no),
  INDEX orders_buyer (buyer_id, order_no)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS order_lines (
  sku_no BIGINT NOT NULL,
  order_no BIGINT NOT NULL,
  quantity BIGINT NOT NULL,
  PRIMARY KEY (sku_no, order_no)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS order_keys (order_key VARBINARY(128) PRIMARY KEY, order_no BIGINT NOT NULL) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS request_keys (
  scope BIGINT NOT NULL,
  request_key VARBINARY(128) NOT NULL,
  command LONGTEXT NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (scope, request_key),
  INDEX request_keys_at (at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS buyer_counters (
  sku_no BIGINT NOT NULL,
  buyer_id VARBINARY(128) NOT NULL,
  units BIGINT NOT NULL,
  PRIMARY KEY (sku_no, buyer_id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS stock_changes (
  sku_no BIGINT NOT NULL,
  stock_version BIGINT NOT NULL,
  at BIGINT NOT NULL,
  kind BIGINT NOT NULL,
  order_no BIGINT,
  reason LONGTEXT,
  on_hand_delta BIGINT NOT NULL,
  held_delta BIGINT NOT NULL,
  sold_delta BIGINT NOT NULL,
  on_hand BIGINT NOT NULL,
  held BIGINT NOT NULL,
  sold BIGINT NOT NULL,
  PRIMARY KEY (sku_no, stock_version)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- The operation log and the outbox. The unchanging parts of an order are joined in when an event is read.
CREATE TABLE IF NOT EXISTS events (
  event_no BIGINT PRIMARY KEY,
  order_no BIGINT,
  seq BIGINT NOT NULL,
  kind BIGINT NOT NULL,
  at BIGINT NOT NULL,
  status BIGINT,
  pay_by BIGINT,
  release_at BIGINT,
  paid_at BIGINT,
  cancelled_at BIGINT,
  cancel_reason BIGINT,
  fulfilled_at BIGINT,
  version BIGINT,
  extra LONGTEXT,
  INDEX events_order (order_no, seq)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- outcome: 0 applied, 1 partial, 2 duplicate (never stored), 3 revived, 4 surplus, 5 refund_due, 6 unmatched.
CREATE TABLE IF NOT EXISTS payments (
  payment_no BIGINT AUTO_INCREMENT PRIMARY KEY,
  payment_id VARBINARY(128) NOT NULL UNIQUE,
  order_id VARBINARY(64) NOT NULL,
  amount BIGINT,
  currency VARBINARY(3),
  captured_at BIGINT,
  received_at BIGINT NOT NULL,
  outcome BIGINT NOT NULL,
  flagged_at BIGINT,
  INDEX payments_order (order_id, payment_no),
  INDEX payments_outcome (outcome, payment_no),
  INDEX payments_stale (outcome, flagged_at, received_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- status: 0 due, 1 settled. reason: 0 excess, 1 surplus, 2 order_cancelled, 3 unmatched, 4 requested.
CREATE TABLE IF NOT EXISTS refunds (
  refund_no BIGINT AUTO_INCREMENT PRIMARY KEY,
  refund_id VARBINARY(64) NOT NULL UNIQUE,
  payment_no BIGINT NOT NULL,
  order_id VARBINARY(64) NOT NULL,
  amount BIGINT,
  currency VARBINARY(3),
  status BIGINT NOT NULL,
  reason BIGINT NOT NULL,
  due_at BIGINT NOT NULL,
  settled_at BIGINT,
  INDEX refunds_payment (payment_no, refund_no),
  INDEX refunds_order (order_id, refund_no),
  INDEX refunds_status (status, refund_no)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS parked (
  parked_no BIGINT AUTO_INCREMENT PRIMARY KEY,
  order_no BIGINT NOT NULL UNIQUE,
  at BIGINT NOT NULL,
  tries BIGINT NOT NULL,
  reason LONGTEXT NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
