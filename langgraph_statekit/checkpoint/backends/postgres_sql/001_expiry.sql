-- When threads expire, by this server's clock, and what is swept. Functions that 001_checkpoints.sql calls.

-- Since when there are writes without their checkpoint. It may also name some whose checkpoint came at the same moment.
CREATE TABLE {schema}.early (
    thread_id text COLLATE "C" NOT NULL,
    ns text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    at_us bigint NOT NULL,
    PRIMARY KEY (thread_id, ns, id)
);
CREATE INDEX early_time ON {schema}.early (at_us);

-- Whether a thread is interrupted, see expiry.py.
CREATE FUNCTION {schema}.waits_1(thread text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM (
            SELECT DISTINCT ON (ns) ns, id, seq FROM {schema}.rows
            WHERE thread_id = thread AND NOT hidden ORDER BY ns, seq DESC
        ) AS head JOIN {schema}.writes w ON (w.thread_id, w.ns, w.id, w.idx) = (thread, head.ns, head.id, -3)
        WHERE head.seq >= coalesce(
            (SELECT max(seq) FROM {schema}.rows WHERE thread_id = thread AND ns = '' AND NOT hidden), 0))
$$;

-- When a thread ends that something happens to now, see expiry.py.
CREATE FUNCTION {schema}.end_1(thread text, life bigint, until bigint, held boolean) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    now_us bigint;
BEGIN
    IF life = 0 OR held AND life > 0 THEN
        RETURN NULL;
    END IF;
    now_us := {schema}.clock_us_1();
    IF until IS NULL OR until - now_us > abs(life) OR 10 * (until - now_us) < 9 * abs(life) THEN
        until := now_us + abs(life);
    END IF;
    RETURN greatest(until, (SELECT l.until_us FROM {schema}.leases l WHERE l.thread_id = thread));
END $$;

-- Lets a thread live on that can expire and has not. A read does not wait for writers, who do the same.
CREATE FUNCTION {schema}.live_on_1(thread text, patient boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT patient THEN
        IF current_setting('transaction_read_only') = 'on' THEN
            RETURN;
        END IF;
        PERFORM 1 FROM {schema}.threads WHERE thread_id = thread FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    UPDATE {schema}.threads SET until_us = {schema}.end_1(thread, ttl_us, until_us, false)
        WHERE thread_id = thread AND until_us > {schema}.clock_us_1();
END $$;

-- Whether a thread has not expired; a read may let it live on. As of the snapshot of the statement that asks.
CREATE FUNCTION {schema}.alive_1(thread text, refresh boolean) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
    life bigint;
    left_us bigint;
BEGIN
    SELECT abs(t.ttl_us), t.until_us INTO life, left_us FROM {schema}.threads t
        WHERE t.thread_id = thread AND t.until_us IS NOT NULL;
    IF NOT FOUND THEN
        RETURN true;
    END IF;
    left_us := left_us - {schema}.clock_us_1();
    IF refresh AND left_us > 0 AND 10 * left_us < 9 * life THEN
        PERFORM {schema}.live_on_1(thread, false);
    END IF;
    RETURN left_us > 0;
END $$;

-- Removes a thread that has expired.
CREATE FUNCTION {schema}.expire_1(thread text) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    PERFORM 1 FROM {schema}.threads WHERE thread_id = thread AND until_us <= {schema}.clock_us_1() FOR UPDATE;
    IF FOUND THEN
        PERFORM {schema}.drop_1(thread);
    END IF;
END $$;

-- Removes some threads that have expired and that nobody is writing to.
CREATE FUNCTION {schema}.sweep_threads_1(most integer) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    found_threads text[] := ARRAY(
        SELECT thread_id FROM {schema}.threads WHERE until_us <= {schema}.clock_us_1()
        ORDER BY until_us LIMIT most FOR UPDATE SKIP LOCKED);
    thread text;
BEGIN
    FOREACH thread IN ARRAY found_threads LOOP
        PERFORM {schema}.drop_1(thread);
    END LOOP;
    RETURN cardinality(found_threads);
END $$;

-- Removes what writes of one thread came so long ago and have no checkpoint; NULL if there is no such thread. It locks
-- one thread only, so that nobody who locks several waits for ever.
CREATE FUNCTION {schema}.sweep_orphans_1(age_us bigint) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    limit_us bigint := {schema}.clock_us_1() - age_us;
    thread text;
    gone bigint;
BEGIN
    SELECT e.thread_id INTO thread FROM {schema}.early e WHERE e.at_us <= limit_us ORDER BY e.at_us LIMIT 1;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM {schema}.lock_1(thread);
    WITH old AS (
        DELETE FROM {schema}.early e WHERE e.thread_id = thread AND e.at_us <= limit_us RETURNING e.ns, e.id
    ), orphans AS (
        DELETE FROM {schema}.writes w USING old WHERE w.thread_id = thread AND (w.ns, w.id) = (old.ns, old.id)
            AND NOT EXISTS (
                SELECT 1 FROM {schema}.rows r WHERE r.thread_id = thread AND r.ns = old.ns AND r.id = old.id)
        RETURNING w.ns, w.id
    )
    SELECT count(*) INTO gone FROM (SELECT DISTINCT ns, id FROM orphans) AS each_one;
    -- Writes that are left need the thread's key.
    DELETE FROM {schema}.threads t WHERE thread_id = thread AND seq = 0
        AND NOT EXISTS (SELECT 1 FROM {schema}.writes w WHERE w.thread_id = thread LIMIT 1);
    RETURN gone;
END $$;
