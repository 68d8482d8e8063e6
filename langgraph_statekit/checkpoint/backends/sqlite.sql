CREATE TABLE threads (
    tid INTEGER PRIMARY KEY,
    thread TEXT NOT NULL UNIQUE,
    seq INTEGER NOT NULL,
    rev INTEGER NOT NULL,
    copied_by TEXT,
    ttl_us INTEGER NOT NULL DEFAULT 0,
    until_us INTEGER,
    header BLOB
);
CREATE INDEX threads_by_end ON threads (until_us) WHERE until_us IS NOT NULL;
CREATE VIEW alive AS SELECT * FROM threads
WHERE until_us IS NULL OR until_us > CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER);
CREATE TABLE early (
    tid INTEGER NOT NULL,
    ns TEXT NOT NULL,
    id TEXT NOT NULL,
    at_us INTEGER NOT NULL,
    UNIQUE (tid, ns, id)
);
CREATE INDEX early_by_time ON early (at_us);
CREATE TABLE rows (
    tid INTEGER NOT NULL,
    ns TEXT NOT NULL,
    id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    parent TEXT,
    via TEXT,
    hidden INTEGER NOT NULL,
    run_id TEXT,
    keys BLOB NOT NULL,
    deltas BLOB NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (tid, ns, id)
);
CREATE INDEX rows_by_ns ON rows (tid, ns, seq);
CREATE INDEX rows_by_seq ON rows (tid, seq);
CREATE INDEX rows_by_run ON rows (run_id) WHERE run_id IS NOT NULL;
CREATE TABLE frames (
    tid INTEGER NOT NULL,
    key BLOB NOT NULL,
    base BLOB,
    head BLOB NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (tid, key)
);
CREATE TABLE writes (
    tid INTEGER NOT NULL,
    ns TEXT NOT NULL,
    id TEXT NOT NULL,
    task TEXT NOT NULL,
    idx INTEGER NOT NULL,
    channel TEXT NOT NULL,
    path TEXT NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (tid, ns, id, task, idx)
);
CREATE TABLE leases (
    thread TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    owner TEXT NOT NULL,
    token INTEGER NOT NULL,
    until_us INTEGER NOT NULL
);
