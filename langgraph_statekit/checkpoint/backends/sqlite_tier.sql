CREATE TABLE IF NOT EXISTS tier (
    tid INTEGER PRIMARY KEY,
    born INTEGER NOT NULL,
    epoch TEXT NOT NULL DEFAULT '',
    complete INTEGER NOT NULL DEFAULT 0,
    at_us INTEGER NOT NULL DEFAULT 0,
    gen INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS tier_by_time ON tier (at_us);
-- A mark is the time of the change in microseconds, and one more where the thread has that mark or an uploaded one beyond
-- it. They grow whatever the clock does, and the notes of a thread lie together: a save fills one page with them.
CREATE TABLE IF NOT EXISTS tier_touched (
    tid INTEGER NOT NULL,
    mark INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    ns,
    id,
    PRIMARY KEY (tid, mark)
) WITHOUT ROWID;
CREATE VIEW IF NOT EXISTS tier_next AS SELECT tid, max(
    1 + at_us,
    1 + coalesce((SELECT max(mark) FROM tier_touched d WHERE d.tid = tier.tid), 0),
    CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000
) AS mark FROM tier;
CREATE TABLE IF NOT EXISTS tier_ended (
    thread TEXT PRIMARY KEY,
    born INTEGER NOT NULL,
    at_us INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS tier_gone (
    name TEXT PRIMARY KEY,
    born INTEGER NOT NULL,
    gen INTEGER NOT NULL,
    at_us INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS tier_gone_by_born ON tier_gone (born);
-- It is born later than all that went, also where the clock was set back: else it would count as deleted with them.
CREATE TRIGGER IF NOT EXISTS tier_begin AFTER INSERT ON threads BEGIN
    INSERT INTO tier (tid, born) VALUES (NEW.tid, max(
        CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000,
        1 + coalesce((SELECT born FROM tier_ended WHERE thread = NEW.thread), 0),
        1 + coalesce((SELECT max(born) FROM tier_gone), 0)
    ));
END;
CREATE TRIGGER IF NOT EXISTS tier_end AFTER DELETE ON threads
WHEN EXISTS (SELECT 1 FROM tier WHERE tid = OLD.tid) BEGIN
    INSERT INTO tier_ended SELECT OLD.thread, born, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000
        FROM tier WHERE tid = OLD.tid AND (OLD.seq > 0 OR complete) -- else the cold store may have more of it
        ON CONFLICT (thread) DO UPDATE SET born = excluded.born, at_us = excluded.at_us;
    DELETE FROM tier WHERE tid = OLD.tid;
    DELETE FROM tier_touched WHERE tid = OLD.tid;
END;
CREATE TRIGGER IF NOT EXISTS tier_thread AFTER UPDATE OF header, ttl_us, until_us, copied_by ON threads BEGIN
    INSERT INTO tier_touched SELECT tid, mark, 0, NULL, NULL FROM tier_next WHERE tid = NEW.tid;
END;
CREATE TRIGGER IF NOT EXISTS tier_new_row AFTER INSERT ON rows BEGIN
    INSERT INTO tier_touched SELECT tid, mark, 1, NEW.ns, NEW.id FROM tier_next WHERE tid = NEW.tid;
END;
CREATE TRIGGER IF NOT EXISTS tier_other_row AFTER UPDATE ON rows BEGIN
    INSERT INTO tier_touched SELECT tid, mark, 1, NEW.ns, NEW.id FROM tier_next WHERE tid = NEW.tid;
END;
CREATE TRIGGER IF NOT EXISTS tier_no_row AFTER DELETE ON rows BEGIN
    INSERT INTO tier_touched SELECT tid, mark, 1, OLD.ns, OLD.id FROM tier_next WHERE tid = OLD.tid;
END;
CREATE TRIGGER IF NOT EXISTS tier_new_frame AFTER INSERT ON frames BEGIN
    INSERT INTO tier_touched SELECT tid, mark, 2, NULL, NEW.key FROM tier_next WHERE tid = NEW.tid;
END;
CREATE TRIGGER IF NOT EXISTS tier_other_frame AFTER UPDATE ON frames BEGIN
    INSERT INTO tier_touched SELECT tid, mark, 2, NULL, OLD.key FROM tier_next WHERE tid = NEW.tid;
    INSERT INTO tier_touched SELECT tid, mark, 2, NULL, NEW.key FROM tier_next WHERE tid = NEW.tid;
END;
CREATE TRIGGER IF NOT EXISTS tier_no_frame AFTER DELETE ON frames BEGIN
    INSERT INTO tier_touched SELECT tid, mark, 2, NULL, OLD.key FROM tier_next WHERE tid = OLD.tid;
END;
CREATE TRIGGER IF NOT EXISTS tier_new_write AFTER INSERT ON writes BEGIN
    INSERT INTO tier_touched SELECT tid, mark, 3, NEW.ns, NEW.id FROM tier_next WHERE tid = NEW.tid;
END;
CREATE TRIGGER IF NOT EXISTS tier_no_write AFTER DELETE ON writes BEGIN
    INSERT INTO tier_touched SELECT tid, mark, 3, OLD.ns, OLD.id FROM tier_next WHERE tid = OLD.tid;
END;
-- What is not in the cold store does not expire: it has no end until `uploaded` gives it one.
CREATE TRIGGER IF NOT EXISTS tier_stay AFTER INSERT ON tier_touched
WHEN NEW.kind > 0 AND EXISTS (SELECT 1 FROM alive WHERE tid = NEW.tid AND until_us > 0) BEGIN
    UPDATE threads SET until_us = NULL WHERE tid = NEW.tid;
END;
CREATE TRIGGER IF NOT EXISTS tier_stay_on AFTER UPDATE OF until_us ON threads
WHEN NEW.until_us > 0 AND EXISTS (SELECT 1 FROM tier_touched d WHERE d.tid = NEW.tid AND d.kind > 0) BEGIN
    UPDATE threads SET until_us = NULL WHERE tid = NEW.tid;
END;
INSERT INTO tier (tid, born) SELECT tid, 1 FROM threads WHERE tid NOT IN (SELECT tid FROM tier);
INSERT INTO tier_touched SELECT
    tid, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000 + row_number() OVER (), kind, ns, id
FROM (
    SELECT tid, 1 AS kind, ns, id FROM rows
    UNION SELECT tid, 3, ns, id FROM writes
    UNION SELECT tid, 2, NULL, key FROM frames
) WHERE tid IN (SELECT tid FROM tier WHERE born = 1);
UPDATE tier SET born = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000 WHERE born = 1;
