-- What follows a thread's header: copies and rotation. Functions of 001_checkpoints.sql and 001_expiry.sql are called.

-- Reads the source in one statement, so that its savers need not wait. 2 if its header has another id than the given one.
CREATE FUNCTION {schema}.copy_1(source text, target text, operation text, sent bytea)
RETURNS integer LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    held bytea;
BEGIN
    PERFORM {schema}.expire_1(target);
    PERFORM {schema}.lock_1(target);
    IF EXISTS (SELECT 1 FROM {schema}.rows WHERE thread_id = target) THEN
        RETURN (SELECT count(*) FROM {schema}.threads WHERE thread_id = target AND copied_by = operation);
    END IF;
    IF NOT {schema}.alive_1(source, false) THEN
        source := target;
    END IF;
    SELECT header INTO held FROM {schema}.threads WHERE thread_id = target;
    IF held IS NOT NULL AND {schema}.rekeyed_1(sent, held) THEN
        RETURN (SELECT 1 - sign(count(*)) FROM {schema}.threads WHERE thread_id = source AND source <> target AND seq > 0);
    END IF;
    WITH origin AS (
        SELECT seq, ttl_us FROM {schema}.threads WHERE thread_id = source AND source <> target AND seq > 0
            AND substring(header FOR 8) IS NOT DISTINCT FROM substring(sent FOR 8)
    ), copied_rows AS (
        INSERT INTO {schema}.rows (thread_id, ns, id, seq, parent, via, hidden, run_id, keys, deltas, body, metadata)
            SELECT target, ns, id, seq, parent, via, hidden, run_id, keys, deltas, body, metadata
            FROM {schema}.rows CROSS JOIN (SELECT FROM origin) AS o WHERE thread_id = source
    ), copied_frames AS (
        INSERT INTO {schema}.frames (thread_id, key, base, data)
            SELECT target, key, base, data FROM {schema}.frames CROSS JOIN (SELECT FROM origin) AS o
            WHERE thread_id = source
    ), copied_writes AS (
        INSERT INTO {schema}.writes (thread_id, ns, id, task, idx, channel, path, data)
            SELECT target, ns, id, task, idx, channel, path, data FROM {schema}.writes w, origin
            WHERE thread_id = source AND NOT EXISTS (
                SELECT 1 FROM {schema}.writes own
                WHERE own.thread_id = target AND own.ns = w.ns AND own.id = w.id)
            ON CONFLICT DO NOTHING
    ), copied_early AS (
        INSERT INTO {schema}.early SELECT target, ns, id, at_us FROM {schema}.early, origin WHERE thread_id = source
            ON CONFLICT DO NOTHING
    )
    UPDATE {schema}.threads t SET seq = origin.seq, rev = {schema}.clock_us_1(), copied_by = operation,
        ttl_us = origin.ttl_us, header = sent FROM origin WHERE t.thread_id = target;
    IF FOUND THEN
        UPDATE {schema}.threads SET until_us = {schema}.end_1(target, ttl_us, NULL, {schema}.waits_1(target))
            WHERE thread_id = target AND ttl_us <> 0;
    ELSE
        DELETE FROM {schema}.threads WHERE thread_id = target AND header IS NULL;
        IF EXISTS (SELECT 1 FROM {schema}.threads WHERE thread_id = source AND source <> target AND seq > 0
            AND substring(header FOR 8) IS DISTINCT FROM substring(sent FOR 8))
        THEN
            RETURN 2;
        END IF;
    END IF;
    RETURN 1;
END $$;

-- Replaces headers that are still the given ones; locks threads in the order in which saves do.
CREATE FUNCTION {schema}.rewrap_1(threads text[], held bytea[], made bytea[])
RETURNS SETOF text LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    place integer;
BEGIN
    FOR place IN SELECT n FROM unnest(threads) WITH ORDINALITY AS t (thread, n) ORDER BY thread COLLATE "C" LOOP
        RETURN QUERY UPDATE {schema}.threads t SET header = made[place]
            WHERE t.thread_id = threads[place] AND t.header = held[place] RETURNING t.thread_id;
    END LOOP;
END $$;
