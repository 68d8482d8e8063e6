-- As save_row_1, but returns the rev that the row gave its thread, by which retention is due. A new row gets the wanted
-- seq, with which an encrypted saver has sealed it, if that is above all others; if the row gets or has another seq than a
-- wanted one (0: any), nothing changes, and that one is returned, negative.
CREATE FUNCTION {schema}.save_row_2(
    thread text, space text, name text, up text, walk text, hide boolean, run text,
    row_keys bytea, row_deltas bytea, row_body bytea,
    frame_keys bytea[], frame_bases bytea[], frame_data bytea[], gone bytea[], id_us bigint, race_us bigint, fence bigint,
    needs_parent boolean, readable jsonb, life bigint, sent bytea, wanted_seq bigint
) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    last_seq bigint;
    next_seq bigint;
    got_seq bigint;
    added bigint;
    wanted bytea;
    lacking boolean := false;
    had bigint;
    until bigint;
    held bytea;
    refused boolean;
    new_rev bigint;
BEGIN
    IF {schema}.fenced_1(thread, fence) THEN
        RETURN NULL;
    END IF;
    LOOP
        SELECT seq, ttl_us, until_us, header INTO last_seq, had, until, held FROM {schema}.threads
            WHERE thread_id = thread FOR UPDATE;
        IF NOT FOUND THEN
            INSERT INTO {schema}.threads (thread_id, seq, rev) VALUES (thread, 0, {schema}.clock_us_1())
                ON CONFLICT DO NOTHING;
        ELSIF until <= {schema}.clock_us_1() THEN
            PERFORM {schema}.drop_1(thread);
        ELSE
            EXIT;
        END IF;
    END LOOP;
    refused := (sent IS NOT NULL OR held IS NOT NULL) AND {schema}.rekeyed_1(sent, held);
    FOREACH wanted IN ARRAY frame_bases LOOP
        lacking := lacking OR (wanted IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM {schema}.frames f WHERE f.thread_id = thread
                AND f.key = substring(wanted FOR 16) AND substring(f.data FROM 3 FOR 4) = substring(wanted FROM 17))
            AND NOT EXISTS (SELECT 1 FROM {schema}.frames f WHERE f.thread_id = thread AND f.key = wanted));
    END LOOP;
    IF needs_parent AND NOT EXISTS (
        SELECT 1 FROM {schema}.rows r WHERE r.thread_id = thread AND r.ns = space AND r.id = up)
    THEN
        FOR place IN 1 .. length(row_keys) BY 16 LOOP
            wanted := substring(row_keys FROM place FOR 16);
            lacking := lacking OR (wanted <> ALL (frame_keys || gone)
                AND NOT EXISTS (SELECT 1 FROM {schema}.frames f WHERE f.thread_id = thread AND f.key = wanted));
        END LOOP;
    END IF;
    IF refused OR lacking THEN
        DELETE FROM {schema}.threads t WHERE thread_id = thread AND header IS NULL
            AND seq = 0 AND NOT EXISTS (SELECT 1 FROM {schema}.rows r WHERE r.thread_id = thread LIMIT 1);
        RETURN CASE WHEN refused THEN 2 ELSE 0 END;
    END IF;
    IF wanted_seq > 0 THEN
        SELECT seq INTO got_seq FROM {schema}.rows WHERE thread_id = thread AND ns = space AND id = name;
    END IF;
    IF got_seq IS NOT NULL THEN
        next_seq := got_seq;
    ELSIF wanted_seq > last_seq THEN
        next_seq := wanted_seq;
    ELSIF id_us = 0 OR last_seq - id_us > race_us THEN
        next_seq := last_seq + 1;
    ELSIF id_us > last_seq THEN
        next_seq := id_us;
    ELSE
        SELECT greatest(id_us, max(seq) + 1) INTO next_seq FROM {schema}.rows
            WHERE thread_id = thread AND ns = space AND id = up;
        WHILE EXISTS (SELECT 1 FROM {schema}.rows WHERE thread_id = thread AND seq = next_seq) LOOP
            next_seq := next_seq + 1;
        END LOOP;
    END IF;
    IF wanted_seq > 0 AND next_seq <> wanted_seq THEN
        RETURN -next_seq;
    END IF;
    INSERT INTO {schema}.rows AS r (thread_id, ns, id, seq, parent, via, hidden, run_id, keys, deltas, body, metadata)
        VALUES (thread, space, name, next_seq, up, walk, hide, run, row_keys, row_deltas, row_body, readable)
        ON CONFLICT (thread_id, ns, id) DO UPDATE SET
            parent = up, via = walk, hidden = hide, run_id = run,
            keys = row_keys, deltas = row_deltas, body = row_body, metadata = readable
        RETURNING r.seq INTO got_seq;
    IF got_seq = next_seq THEN
        DELETE FROM {schema}.early e WHERE e.thread_id = thread AND e.ns = space AND e.id = name;
    END IF;
    life := coalesce(life, had);
    IF life <> 0 THEN
        until := {schema}.end_1(thread, life, until, (until IS NULL OR life <> had OR EXISTS (
            SELECT 1 FROM {schema}.writes w WHERE (w.thread_id, w.ns, w.id, w.idx) = (thread, space, name, -3)
        )) AND {schema}.waits_1(thread));
    END IF;
    UPDATE {schema}.threads SET rev = rev + 1, seq = greatest(seq, got_seq), header = coalesce(header, sent),
        ttl_us = life, until_us = CASE WHEN life <> 0 THEN until END WHERE thread_id = thread
        RETURNING rev INTO new_rev;
    INSERT INTO {schema}.frames (thread_id, key, base, data)
        SELECT thread, n.* FROM unnest(frame_keys, frame_bases, frame_data) AS n ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    IF added < cardinality(frame_keys) OR cardinality(gone) > 0 AND EXISTS (
        SELECT 1 FROM unnest(gone) AS g (key), LATERAL (
            SELECT 1 FROM {schema}.frames f WHERE f.thread_id = thread AND f.key = g.key LIMIT 1) AS f)
    THEN
        PERFORM {schema}.replace_1(thread, frame_keys, frame_bases, frame_data, gone);
    END IF;
    RETURN new_rev;
END $$;

-- For workers of the release before.
CREATE OR REPLACE FUNCTION {schema}.save_row_1(
    thread text, space text, name text, up text, walk text, hide boolean, run text,
    row_keys bytea, row_deltas bytea, row_body bytea,
    frame_keys bytea[], frame_bases bytea[], frame_data bytea[], gone bytea[], id_us bigint, race_us bigint, fence bigint,
    needs_parent boolean, readable jsonb, life bigint, sent bytea
) RETURNS integer LANGUAGE sql AS $$
    SELECT (CASE WHEN done > 2 THEN 1 ELSE done END)::integer FROM {schema}.save_row_2(
        thread, space, name, up, walk, hide, run, row_keys, row_deltas, row_body, frame_keys, frame_bases, frame_data,
        gone, id_us, race_us, fence, needs_parent, readable, life, sent, 0) AS done
$$;
