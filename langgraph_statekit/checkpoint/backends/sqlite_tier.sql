CREATE TABLE IF NOT EXISTS tier (
    tid INTEGER PRIMARY KEY,
    born INTEGER NOT NULL,
    epoch TEXT NOT NULL DEFAULT '',
    complete INTEGER NOT NULL DEFAULT 0,
    at_us INTEGER NOT NULL DEFAULT 0,
    gen INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS tier_by_time ON tier (at_us);
CREATE TABLE IF NOT EXISTS tier_touched (
    mark INTEGER PRIMARY KEY AUTOINCREMENT,
    tid INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    ns,
    id,
    at_us INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000)
);
CREATE INDEX IF NOT EXISTS tier_touched_by_thread ON tier_touched (tid);
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
CREATE TRIGGER IF NOT EXISTS tier_begin AFTER INSERT ON threads BEGIN
    INSERT INTO tier (tid, born) VALUES (NEW.tid, max(
        CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000,
        1 + coalesce((SELECT born FROM tier_ended WHERE thread = NEW.thread), 0)
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
CREATE TRIGGER IF NOT EXISTS tier_thread AFTER UPDATE OF header, ttl_us, until_us, copied_by ON threads
WHEN EXISTS (SELECT 1 FROM tier WHERE tid = NEW.tid) BEGIN
    INSERT INTO tier_touched (tid, kind) VALUES (NEW.tid, 0);
END;
CREATE TRIGGER IF NOT EXISTS tier_new_row AFTER INSERT ON rows
WHEN EXISTS (SELECT 1 FROM tier WHERE tid = NEW.tid) BEGIN
    INSERT INTO tier_touched (tid, kind, ns, id) VALUES (NEW.tid, 1, NEW.ns, NEW.id);
END;
CREATE TRIGGER IF NOT EXISTS tier_other_row AFTER UPDATE ON rows
WHEN EXISTS (SELECT 1 FROM tier WHERE tid = NEW.tid) BEGIN
    INSERT INTO tier_touched (tid, kind, ns, id) VALUES (NEW.tid, 1, NEW.ns, NEW.id);
END;
CREATE TRIGGER IF NOT EXISTS tier_no_row AFTER DELETE ON rows
WHEN EXISTS (SELECT 1 FROM tier WHERE tid = OLD.tid) BEGIN
    INSERT INTO tier_touched (tid, kind, ns, id) VALUES (OLD.tid, 1, OLD.ns, OLD.id);
END;
CREATE TRIGGER IF NOT EXISTS tier_new_frame AFTER INSERT ON frames
WHEN EXISTS (SELECT 1 FROM tier WHERE tid = NEW.tid) BEGIN
    INSERT INTO tier_touched (tid, kind, id) VALUES (NEW.tid, 2, NEW.key);
END;
CREATE TRIGGER IF NOT EXISTS tier_other_frame AFTER UPDATE ON frames
WHEN EXISTS (SELECT 1 FROM tier WHERE tid = NEW.tid) BEGIN
    INSERT INTO tier_touched (tid, kind, id) VALUES (NEW.tid, 2, OLD.key), (NEW.tid, 2, NEW.key);
END;
CREATE TRIGGER IF NOT EXISTS tier_no_frame AFTER DELETE ON frames
WHEN EXISTS (SELECT 1 FROM tier WHERE tid = OLD.tid) BEGIN
    INSERT INTO tier_touched (tid, kind, id) VALUES (OLD.tid, 2, OLD.key);
END;
CREATE TRIGGER IF NOT EXISTS tier_new_write AFTER INSERT ON writes
WHEN EXISTS (SELECT 1 FROM tier WHERE tid = NEW.tid) BEGIN
    INSERT INTO tier_touched (tid, kind, ns, id) VALUES (NEW.tid, 3, NEW.ns, NEW.id);
END;
CREATE TRIGGER IF NOT EXISTS tier_no_write AFTER DELETE ON writes
WHEN EXISTS (SELECT 1 FROM tier WHERE tid = OLD.tid) BEGIN
    INSERT INTO tier_touched (tid, kind, ns, id) VALUES (OLD.tid, 3, OLD.ns, OLD.id);
END;
INSERT INTO tier (tid, born) SELECT tid, 1 FROM threads WHERE tid NOT IN (SELECT tid FROM tier);
INSERT INTO tier_touched (tid, kind, ns, id)
    SELECT tid, 1, ns, id FROM rows WHERE tid IN (SELECT tid FROM tier WHERE born = 1);
INSERT INTO tier_touched (tid, kind, ns, id)
    SELECT DISTINCT tid, 3, ns, id FROM writes WHERE tid IN (SELECT tid FROM tier WHERE born = 1);
INSERT INTO tier_touched (tid, kind, id)
    SELECT tid, 2, key FROM frames WHERE tid IN (SELECT tid FROM tier WHERE born = 1);
UPDATE tier SET born = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000 WHERE born = 1;
