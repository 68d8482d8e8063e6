CREATE TABLE cells (
    kind TEXT NOT NULL,
    thread TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    groups TEXT NOT NULL,
    rev INTEGER NOT NULL,
    operation TEXT NOT NULL,
    until_us INTEGER,
    UNIQUE (kind, thread, key)
);
CREATE INDEX cells_by_end ON cells (until_us) WHERE until_us IS NOT NULL;
CREATE TABLE cell_groups (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    rev INTEGER NOT NULL,
    thread TEXT NOT NULL,
    key TEXT NOT NULL,
    PRIMARY KEY (kind, name, rev, thread, key)
) WITHOUT ROWID;
