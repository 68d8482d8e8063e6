CREATE TABLE {schema}.tier (
    thread_id text COLLATE "C" PRIMARY KEY,
    born bigint NOT NULL,
    epoch text NOT NULL DEFAULT '',
    complete boolean NOT NULL DEFAULT false,
    at_us bigint NOT NULL DEFAULT 0,
    gen bigint NOT NULL DEFAULT 0
);
CREATE INDEX tier_at ON {schema}.tier (at_us);

CREATE TABLE {schema}.tier_touched (
    thread_id text COLLATE "C" NOT NULL,
    mark bigint GENERATED ALWAYS AS IDENTITY,
    kind integer NOT NULL,
    ns text COLLATE "C",
    id text COLLATE "C",
    key bytea,
    at_us bigint NOT NULL DEFAULT {schema}.clock_us_1(),
    PRIMARY KEY (thread_id, mark)
);

-- Threads that have ended here, and perhaps not in the cold store.
CREATE TABLE {schema}.tier_ended (thread_id text COLLATE "C" PRIMARY KEY, born bigint NOT NULL, at_us bigint NOT NULL);

-- What is left, for a while, of threads that were dropped here: no thaw brings an older state back.
CREATE TABLE {schema}.tier_gone (name text PRIMARY KEY, born bigint NOT NULL, gen bigint NOT NULL, at_us bigint NOT NULL);
CREATE INDEX tier_gone_born ON {schema}.tier_gone (born);

-- Notes what changed. The lock on the thread's row of `tier` lasts until the change counts, so that no eviction, which
-- locks it too, comes between. Once a transaction has it, it need not ask again: a setting of it says for which thread. A
-- thread is born later than all that went, also where the clock was set back: else it would count as deleted with them.
CREATE FUNCTION {schema}.tier_note_1() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    what integer := TG_ARGV[0];
    thread text := CASE WHEN TG_OP = 'DELETE' THEN OLD.thread_id ELSE NEW.thread_id END;
    place text := TG_TABLE_SCHEMA || '.' || thread;
    known boolean := coalesce(current_setting('statekit.noted', true), '') = place;
BEGIN
    WHILE NOT known LOOP
        PERFORM 1 FROM {schema}.tier t WHERE t.thread_id = thread FOR KEY SHARE;
        EXIT WHEN FOUND;
        IF TG_OP = 'DELETE' THEN
            RETURN NULL;
        END IF;
        INSERT INTO {schema}.tier (thread_id, born) VALUES (thread, greatest({schema}.clock_us_1(),
            (SELECT 1 + e.born FROM {schema}.tier_ended e WHERE e.thread_id = thread),
            (SELECT 1 + max(g.born) FROM {schema}.tier_gone g))) ON CONFLICT DO NOTHING;
    END LOOP;
    IF what > 0 AND NOT known THEN -- it does not expire: it has no end until `uploaded` gives it one, see `tier_stay`
        UPDATE {schema}.threads SET until_us = NULL WHERE thread_id = thread AND until_us > {schema}.clock_us_1();
        PERFORM set_config('statekit.noted', place, true);
    END IF;
    IF what = 0 THEN
        INSERT INTO {schema}.tier_touched (thread_id, kind) VALUES (thread, 0);
    ELSIF what = 2 AND TG_OP = 'DELETE' THEN
        INSERT INTO {schema}.tier_touched (thread_id, kind, key) VALUES (thread, 2, OLD.key);
    ELSIF what = 2 THEN
        INSERT INTO {schema}.tier_touched (thread_id, kind, key) VALUES (thread, 2, NEW.key);
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO {schema}.tier_touched (thread_id, kind, ns, id) VALUES (thread, what, OLD.ns, OLD.id);
    ELSE
        INSERT INTO {schema}.tier_touched (thread_id, kind, ns, id) VALUES (thread, what, NEW.ns, NEW.id);
    END IF;
    RETURN NULL;
END $$;

-- A thread that never had a checkpoint (`seq` is 0) has none that could end.
CREATE FUNCTION {schema}.tier_end_1() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    PERFORM 1 FROM {schema}.tier t WHERE t.thread_id = OLD.thread_id FOR UPDATE; -- as an upload that notes itself
    INSERT INTO {schema}.tier_ended SELECT t.thread_id, t.born, {schema}.clock_us_1() FROM {schema}.tier t
        WHERE t.thread_id = OLD.thread_id
        ON CONFLICT (thread_id) DO UPDATE SET born = excluded.born, at_us = excluded.at_us;
    DELETE FROM {schema}.tier_touched d WHERE d.thread_id = OLD.thread_id;
    DELETE FROM {schema}.tier t WHERE t.thread_id = OLD.thread_id;
    PERFORM set_config('statekit.noted', '', true);
    RETURN NULL;
END $$;

-- What moves threads between the tiers notes nothing, and says so by a setting of its transaction.
CREATE FUNCTION {schema}.tier_quiet_1() RETURNS boolean LANGUAGE sql STABLE AS
$$ SELECT coalesce(current_setting('statekit.quiet', true), '') = 'on' $$;

CREATE FUNCTION {schema}.tier_stay_1() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM {schema}.tier_touched d WHERE d.thread_id = NEW.thread_id AND d.kind > 0) THEN
        NEW.until_us := NULL;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER tier_stay BEFORE UPDATE OF until_us ON {schema}.threads FOR EACH ROW
    WHEN (NEW.until_us IS NOT NULL AND NOT {schema}.tier_quiet_1()) EXECUTE FUNCTION {schema}.tier_stay_1();
CREATE TRIGGER tier_thread AFTER UPDATE OF header, ttl_us, until_us, copied_by ON {schema}.threads FOR EACH ROW
    WHEN (NOT {schema}.tier_quiet_1() AND NEW.seq > 0 AND (OLD.header, OLD.ttl_us, OLD.until_us, OLD.copied_by)
        IS DISTINCT FROM (NEW.header, NEW.ttl_us, NEW.until_us, NEW.copied_by))
    EXECUTE FUNCTION {schema}.tier_note_1('0');
CREATE TRIGGER tier_end AFTER DELETE ON {schema}.threads FOR EACH ROW
    WHEN (NOT {schema}.tier_quiet_1() AND OLD.seq > 0) EXECUTE FUNCTION {schema}.tier_end_1();
CREATE TRIGGER tier_row AFTER INSERT OR UPDATE OR DELETE ON {schema}.rows FOR EACH ROW
    WHEN (NOT {schema}.tier_quiet_1()) EXECUTE FUNCTION {schema}.tier_note_1('1');
CREATE TRIGGER tier_frame AFTER INSERT OR UPDATE OR DELETE ON {schema}.frames FOR EACH ROW
    WHEN (NOT {schema}.tier_quiet_1()) EXECUTE FUNCTION {schema}.tier_note_1('2');
CREATE TRIGGER tier_write AFTER INSERT OR UPDATE OR DELETE ON {schema}.writes FOR EACH ROW
    WHEN (NOT {schema}.tier_quiet_1()) EXECUTE FUNCTION {schema}.tier_note_1('3');

INSERT INTO {schema}.tier (thread_id, born)
    SELECT thread_id, {schema}.clock_us_1() FROM {schema}.threads WHERE seq > 0
    UNION SELECT thread_id, {schema}.clock_us_1() FROM {schema}.writes
    ON CONFLICT DO NOTHING;
INSERT INTO {schema}.tier_touched (thread_id, kind, ns, id) SELECT thread_id, 1, ns, id FROM {schema}.rows;
INSERT INTO {schema}.tier_touched (thread_id, kind, key) SELECT thread_id, 2, key FROM {schema}.frames;
INSERT INTO {schema}.tier_touched (thread_id, kind, ns, id) SELECT DISTINCT thread_id, 3, ns, id FROM {schema}.writes;
UPDATE {schema}.threads SET until_us = NULL WHERE until_us > {schema}.clock_us_1();
