-- Ids, keys and SKUs are BLOBs: compared byte for byte, no collation folds them. Instants are milliseconds since 1970.

CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;

-- Counts stand before the card, and free attributes apart: a commit that sells a thousand units rewrites one short row.
CREATE TABLE skus (
  sku_no INTEGER PRIMARY KEY,
  sku BLOB NOT NULL UNIQUE,
  on_hand INTEGER NOT NULL,
  held INTEGER NOT NULL,
  sold INTEGER NOT NULL,
  stock_version INTEGER NOT NULL,
  version INTEGER NOT NULL,
  archived INTEGER NOT NULL,
  changed_at INTEGER NOT NULL,
  title TEXT,
  price INTEGER,
  currency TEXT,
  hold_seconds INTEGER,
  max_per_order INTEGER,
  max_per_buyer INTEGER,
  buyer_limit_since INTEGER,
  on_sale_from INTEGER,
  CHECK (held >= 0 AND sold >= 0 AND on_hand >= held + sold)
);
CREATE TABLE sku_attributes (sku_no INTEGER PRIMARY KEY, attributes TEXT NOT NULL);

-- All that an order id stands for, in one look-up: an order, a tombstone, and how many payments wait for an order.
CREATE TABLE order_ids (
  id BLOB PRIMARY KEY,
  order_no INTEGER,
  tombstone_at INTEGER,
  loose INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX order_ids_tombstone ON order_ids (tombstone_at) WHERE tombstone_at IS NOT NULL;

-- status: 0 pending, 1 paid, 2 cancelled, 3 fulfilled. first_cursor: its event with seq 1. lines: see codec.rs.
CREATE TABLE orders (
  order_no INTEGER PRIMARY KEY,
  id BLOB NOT NULL,
  buyer_id BLOB NOT NULL,
  status INTEGER NOT NULL,
  placed_at INTEGER NOT NULL,
  pay_by INTEGER NOT NULL,
  release_at INTEGER NOT NULL,
  paid_at INTEGER,
  cancelled_at INTEGER,
  cancel_reason INTEGER,
  fulfilled_at INTEGER,
  version INTEGER NOT NULL,
  closed INTEGER NOT NULL,
  last_seq INTEGER NOT NULL,
  payment_count INTEGER NOT NULL,
  first_cursor INTEGER,
  requested_hold INTEGER,
  supersedes BLOB,
  total INTEGER,
  currency TEXT,
  lines BLOB NOT NULL,
  metadata TEXT
);
-- status, always 0 here, makes it cover the listing of deadlines.
CREATE INDEX orders_due ON orders (status, release_at) WHERE status = 0;
CREATE INDEX orders_status ON orders (status);

CREATE TABLE order_lines (
  sku_no INTEGER NOT NULL,
  order_no INTEGER NOT NULL,
  quantity INTEGER NOT NULL,
  PRIMARY KEY (sku_no, order_no)
) WITHOUT ROWID;

-- Filled late and in key order (buyers.rs); buyer is a hash, so each entry is held against its order.
CREATE TABLE buyer_orders (
  buyer INTEGER NOT NULL,
  order_no INTEGER NOT NULL,
  PRIMARY KEY (buyer, order_no)
) WITHOUT ROWID;

CREATE TABLE order_keys (key BLOB PRIMARY KEY, order_no INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE request_keys (
  scope INTEGER NOT NULL,
  key BLOB NOT NULL,
  command TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE INDEX request_keys_at ON request_keys (at);

CREATE TABLE buyer_counters (
  sku_no INTEGER NOT NULL,
  buyer_id BLOB NOT NULL,
  units INTEGER NOT NULL,
  PRIMARY KEY (sku_no, buyer_id)
) WITHOUT ROWID;

CREATE TABLE stock_changes (
  sku_no INTEGER NOT NULL,
  stock_version INTEGER NOT NULL,
  at INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  order_no INTEGER,
  reason TEXT,
  on_hand_delta INTEGER NOT NULL,
  held_delta INTEGER NOT NULL,
  sold_delta INTEGER NOT NULL,
  on_hand INTEGER NOT NULL,
  held INTEGER NOT NULL,
  sold INTEGER NOT NULL,
  PRIMARY KEY (sku_no, stock_version)
) WITHOUT ROWID;

-- The operation log and the outbox. The unchanging parts of an order are joined in when an event is read.
-- extra: payments, payment, refund and reason as JSON, when there are any (codec.rs).
CREATE TABLE events (
  cursor INTEGER PRIMARY KEY,
  order_no INTEGER,
  seq INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  at INTEGER NOT NULL,
  status INTEGER,
  pay_by INTEGER,
  release_at INTEGER,
  paid_at INTEGER,
  cancelled_at INTEGER,
  cancel_reason INTEGER,
  fulfilled_at INTEGER,
  version INTEGER,
  extra TEXT
);
-- An order knows where its first event is, so that placing one costs no entry here.
CREATE INDEX events_order ON events (order_no, seq) WHERE seq > 1;

-- outcome: 0 applied, 1 partial, 2 duplicate (never stored), 3 revived, 4 surplus, 5 refund_due, 6 unmatched.
CREATE TABLE payments (
  payment_no INTEGER PRIMARY KEY,
  payment_id BLOB NOT NULL UNIQUE,
  order_id BLOB NOT NULL,
  amount INTEGER,
  currency TEXT,
  captured_at INTEGER,
  received_at INTEGER NOT NULL,
  outcome INTEGER NOT NULL,
  flagged_at INTEGER
);
CREATE INDEX payments_order ON payments (order_id);
CREATE INDEX payments_outcome ON payments (outcome) WHERE outcome <> 0;
CREATE INDEX payments_stale ON payments (received_at) WHERE outcome = 6 AND flagged_at IS NULL;

-- status: 0 due, 1 settled. reason: 0 excess, 1 surplus, 2 order_cancelled, 3 unmatched, 4 requested.
CREATE TABLE refunds (
  refund_no INTEGER PRIMARY KEY,
  refund_id BLOB NOT NULL UNIQUE,
  payment_no INTEGER NOT NULL,
  order_id BLOB NOT NULL,
  amount INTEGER,
  currency TEXT,
  status INTEGER NOT NULL,
  reason INTEGER NOT NULL,
  due_at INTEGER NOT NULL,
  settled_at INTEGER
);
CREATE INDEX refunds_payment ON refunds (payment_no);
CREATE INDEX refunds_order ON refunds (order_id);
CREATE INDEX refunds_status ON refunds (status);

CREATE TABLE parked (
  parked_no INTEGER PRIMARY KEY,
  order_no INTEGER NOT NULL UNIQUE,
  at INTEGER NOT NULL,
  tries INTEGER NOT NULL,
  reason TEXT NOT NULL
);
