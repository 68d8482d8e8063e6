-- Values are compressed by the client, so their columns are not compressed again. Ids compare by code point.

CREATE TABLE {schema}.threads (
    thread_id text COLLATE "C" PRIMARY KEY,
    seq bigint NOT NULL,
    rev bigint NOT NULL,
    copied_by text COLLATE "C",
    ttl_us bigint NOT NULL DEFAULT 0,
    until_us bigint,
    header bytea
) WITH (fillfactor = 70);
CREATE INDEX threads_end ON {schema}.threads (until_us) WHERE until_us IS NOT NULL;

CREATE TABLE {schema}.rows (
    thread_id text COLLATE "C" NOT NULL,
    ns text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    parent text COLLATE "C",
    via text COLLATE "C",
    hidden boolean NOT NULL,
    run_id text COLLATE "C",
    keys bytea NOT NULL,
    deltas bytea NOT NULL,
    body bytea NOT NULL,
    metadata jsonb,
    PRIMARY KEY (thread_id, ns, id)
);
ALTER TABLE {schema}.rows
    ALTER keys SET STORAGE EXTERNAL, ALTER deltas SET STORAGE EXTERNAL, ALTER body SET STORAGE EXTERNAL;
CREATE INDEX rows_head ON {schema}.rows (thread_id, ns, seq) WHERE NOT hidden;
CREATE INDEX rows_run ON {schema}.rows (run_id, thread_id) WHERE run_id IS NOT NULL;
CREATE INDEX rows_metadata ON {schema}.rows USING gin (metadata jsonb_path_ops) WHERE metadata IS NOT NULL;

CREATE TABLE {schema}.frames (
    thread_id text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    base bytea,
    data bytea NOT NULL,
    PRIMARY KEY (thread_id, key)
);
ALTER TABLE {schema}.frames ALTER data SET STORAGE EXTERNAL;

CREATE TABLE {schema}.writes (
    thread_id text COLLATE "C" NOT NULL,
    ns text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    idx integer NOT NULL,
    channel text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (thread_id, ns, id, task, idx)
);
ALTER TABLE {schema}.writes ALTER data SET STORAGE EXTERNAL;

-- A new life of a thread starts at a rev that no earlier one had: the clock.
CREATE FUNCTION {schema}.clock_us_1() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- Frames are looked up one by one, in a loop or through `LATERAL ... LIMIT`: the planner, which cannot know how many a
-- thread has, would at times read all of them. A plan made while a table was small must not stay a scan when it has grown, hence
-- the settings.

-- Moves what gets another value, or none, to key and check, since deltas may build on it.
CREATE FUNCTION {schema}.replace_1(
    thread text, frame_keys bytea[], frame_bases bytea[], frame_data bytea[], gone bytea[]
) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    one bytea;
BEGIN
    INSERT INTO {schema}.frames (thread_id, key, base, data)
        SELECT thread, f.key || substring(f.data FROM 3 FOR 4), f.base, f.data
        FROM unnest(frame_keys || gone, frame_data) AS n (key, data), LATERAL (
            SELECT f.* FROM {schema}.frames f WHERE f.thread_id = thread AND f.key = n.key LIMIT 1) AS f
        WHERE substring(f.data FROM 3 FOR 4) IS DISTINCT FROM substring(n.data FROM 3 FOR 4)
        ON CONFLICT (thread_id, key) DO UPDATE SET base = excluded.base, data = excluded.data;
    INSERT INTO {schema}.frames AS f (thread_id, key, base, data)
        SELECT thread, n.* FROM unnest(frame_keys, frame_bases, frame_data) AS n
        ON CONFLICT (thread_id, key) DO UPDATE SET base = excluded.base, data = excluded.data
        WHERE f.data <> excluded.data;
    FOREACH one IN ARRAY gone LOOP
        DELETE FROM {schema}.frames WHERE thread_id = thread AND key = one;
    END LOOP;
END $$;

-- Whether a save, or a copy, is sealed with another key than its thread's: see claims.py.
CREATE FUNCTION {schema}.rekeyed_1(sent bytea, stored bytea) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN stored IS NULL THEN length(sent) = 8
        ELSE substring(sent FOR 8) IS DISTINCT FROM substring(stored FOR 8) END
$$;

-- NULL if the token comes too late; 2 if it is sealed with another key; 0 if a base (key and check together) is not
-- stored; then nothing changed. Where a new row goes is told in order.py.
CREATE FUNCTION {schema}.save_row_1(
    thread text, space text, name text, up text, walk text, hide boolean, run text,
    row_keys bytea, row_deltas bytea, row_body bytea,
    frame_keys bytea[], frame_bases bytea[], frame_data bytea[], gone bytea[], id_us bigint, race_us bigint, fence bigint,
    needs_parent boolean, readable jsonb, life bigint, sent bytea
) RETURNS integer LANGUAGE plpgsql SET enable_seqscan = off AS $$
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
    IF id_us = 0 OR last_seq - id_us > race_us THEN
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
        ttl_us = life, until_us = CASE WHEN life <> 0 THEN until END WHERE thread_id = thread;
    INSERT INTO {schema}.frames (thread_id, key, base, data)
        SELECT thread, n.* FROM unnest(frame_keys, frame_bases, frame_data) AS n ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    IF added < cardinality(frame_keys) OR cardinality(gone) > 0 AND EXISTS (
        SELECT 1 FROM unnest(gone) AS g (key), LATERAL (
            SELECT 1 FROM {schema}.frames f WHERE f.thread_id = thread AND f.key = g.key LIMIT 1) AS f)
    THEN
        PERFORM {schema}.replace_1(thread, frame_keys, frame_bases, frame_data, gone);
    END IF;
    RETURN 1;
END $$;

-- Writes come sorted, so that two batches lock what they share in the same order. NULL and 2 as above.
CREATE FUNCTION {schema}.save_writes_1(
    thread text, space text, name text, fence bigint,
    tasks text[], idxs integer[], channels text[], paths text[], datas bytea[], sent bytea
) RETURNS integer LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    life bigint;
    until bigint;
    held bytea;
    there boolean;
    asks boolean := -3 = ANY (idxs);
BEGIN
    IF {schema}.fenced_1(thread, fence) THEN
        RETURN NULL;
    END IF;
    LOOP
        SELECT ttl_us, until_us, header INTO life, until, held FROM {schema}.threads WHERE thread_id = thread
            AND (until_us IS NULL OR until_us > {schema}.clock_us_1()) FOR KEY SHARE;
        there := FOUND;
        IF NOT there THEN
            PERFORM {schema}.expire_1(thread);
        END IF;
        IF (sent IS NOT NULL OR held IS NOT NULL) AND {schema}.rekeyed_1(sent, held) THEN
            RETURN 2;
        END IF;
        EXIT WHEN (there OR NOT asks) AND (sent IS NULL OR held IS NOT NULL);
        -- The first checkpoint may come at this moment: one of the two must see the other.
        INSERT INTO {schema}.threads AS t (thread_id, seq, rev, header) VALUES (thread, 0, {schema}.clock_us_1(), sent)
            ON CONFLICT (thread_id) DO UPDATE SET header = sent WHERE t.header IS NULL AND sent IS NOT NULL;
    END LOOP;
    INSERT INTO {schema}.writes (thread_id, ns, id, task, idx, channel, path, data)
        SELECT thread, space, name, w.* FROM unnest(tasks, idxs, channels, paths, datas) AS w
        ON CONFLICT (thread_id, ns, id, task, idx) DO UPDATE
            SET channel = excluded.channel, path = excluded.path, data = excluded.data
            WHERE excluded.idx < 0;
    INSERT INTO {schema}.early SELECT thread, space, name, {schema}.clock_us_1() WHERE NOT EXISTS (
        SELECT 1 FROM {schema}.rows r WHERE r.thread_id = thread AND r.ns = space AND r.id = name
    ) ON CONFLICT DO NOTHING;
    IF life <> 0 AND (until IS NOT NULL OR asks) THEN
        until := {schema}.end_1(thread, life, until, asks AND {schema}.waits_1(thread));
        UPDATE {schema}.threads SET until_us = until WHERE thread_id = thread AND until_us IS DISTINCT FROM until;
    END IF;
    RETURN 1;
END $$;

-- The stored ones of some frames and all that they build on, each once where the keys of a channel (8 bytes) stand
-- together. A loop is twice as fast as a recursive query, and five times where there is nothing to follow.
CREATE FUNCTION {schema}.frames_1(thread text, frame_keys bytea[])
RETURNS TABLE (frame_key bytea, frame_data bytea) LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
DECLARE
    wanted bytea;
    next_base bytea;
    channel bytea;
    seen bytea[];
BEGIN
    FOREACH wanted IN ARRAY frame_keys LOOP
        IF substring(wanted FOR 8) IS DISTINCT FROM channel THEN
            channel := substring(wanted FOR 8);
            seen := '{{}}';
        END IF;
        WHILE wanted IS NOT NULL LOOP
            SELECT f.key, f.base, f.data INTO frame_key, next_base, frame_data
                FROM {schema}.frames f WHERE f.thread_id = thread AND f.key = substring(wanted FOR 16);
            IF substring(frame_data FROM 3 FOR 4) IS DISTINCT FROM substring(wanted FROM 17) AND length(wanted) > 16 THEN
                SELECT f.key, f.base, f.data INTO frame_key, next_base, frame_data
                    FROM {schema}.frames f WHERE f.thread_id = thread AND f.key = wanted;
            END IF;
            EXIT WHEN NOT FOUND OR frame_key = ANY (seen);
            RETURN NEXT;
            seen := seen || frame_key;
            wanted := next_base;
        END LOOP;
    END LOOP;
END $$;

-- One row of kind 0, its frames as kind 1, its writes as kind 2, and if it is sealed (see frames.py) its thread's header
-- as kind 3. A plan made while a table was small must not stay a
-- scan when it has grown, hence the setting.
CREATE FUNCTION {schema}.load_1(thread text, space text, name text, refresh boolean)
RETURNS TABLE (
    kind integer, num bigint, text_a text, text_b text, text_c text, text_d text, data bytea, row_keys bytea,
    row_deltas bytea
) LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
DECLARE
    r {schema}.rows;
BEGIN
    IF name IS NULL THEN
        SELECT * INTO r FROM {schema}.rows WHERE thread_id = thread AND ns = space AND NOT hidden
            ORDER BY seq DESC LIMIT 1;
    ELSE
        SELECT * INTO r FROM {schema}.rows WHERE thread_id = thread AND ns = space AND id = name;
    END IF;
    IF NOT FOUND OR r.hidden OR NOT {schema}.alive_1(thread, refresh) THEN
        RETURN;
    END IF;
    RETURN QUERY
        SELECT 0, r.seq, r.id, r.parent, r.via, r.run_id, r.body, r.keys, r.deltas
        UNION ALL
        SELECT 1, NULL, NULL, NULL, NULL, NULL, f.frame_data, f.frame_key, NULL
            FROM {schema}.frames_1(thread, ARRAY(
                SELECT substring(r.keys FROM start FOR 16) FROM generate_series(1, length(r.keys), 16) AS start)) AS f
        UNION ALL
        SELECT 2, w.idx, w.task, w.channel, w.path, NULL, w.data, NULL, NULL FROM {schema}.writes w
            WHERE w.thread_id = thread AND w.ns = space AND w.id = r.id
        UNION ALL
        SELECT 3, NULL, NULL, NULL, NULL, NULL, t.header, NULL, NULL FROM {schema}.threads t
            WHERE length(r.body) > 1 AND get_byte(r.body, 1) & 4 > 0 AND t.thread_id = thread AND t.header IS NOT NULL;
END $$;

-- Locks the thread against everything else that changes it, and makes its row if there is none to lock.
CREATE FUNCTION {schema}.lock_1(thread text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    found_rev bigint;
BEGIN
    LOOP
        SELECT rev INTO found_rev FROM {schema}.threads WHERE thread_id = thread FOR UPDATE;
        IF FOUND THEN
            RETURN found_rev;
        END IF;
        INSERT INTO {schema}.threads (thread_id, seq, rev) VALUES (thread, 0, 0) ON CONFLICT DO NOTHING;
    END LOOP;
END $$;

CREATE FUNCTION {schema}.drop_1(thread text) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    PERFORM {schema}.lock_1(thread);
    DELETE FROM {schema}.writes WHERE thread_id = thread;
    DELETE FROM {schema}.frames WHERE thread_id = thread;
    DELETE FROM {schema}.rows WHERE thread_id = thread;
    DELETE FROM {schema}.early WHERE thread_id = thread;
    DELETE FROM {schema}.threads WHERE thread_id = thread;
END $$;

-- The rows and frames that are named go or, with `keep`, all others do: so the shorter list is sent.
CREATE FUNCTION {schema}.apply_1(
    thread text, at_rev bigint, keep boolean, some_ns text[], some_id text[], some_keys bytea[],
    link_ns text[], link_id text[], link_parent text[], link_via text[], link_hidden boolean[]
) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    now_rev bigint;
BEGIN
    PERFORM {schema}.expire_1(thread);
    now_rev := {schema}.lock_1(thread);
    IF now_rev <> at_rev THEN
        DELETE FROM {schema}.threads WHERE thread_id = thread AND seq = 0 AND header IS NULL;
        RETURN false;
    END IF;
    IF keep THEN
        WITH gone AS (
            DELETE FROM {schema}.rows r WHERE thread_id = thread
                AND NOT EXISTS (SELECT 1 FROM unnest(some_ns, some_id) AS k (ns, id) WHERE (k.ns, k.id) = (r.ns, r.id))
            RETURNING ns, id
        )
        DELETE FROM {schema}.writes w USING gone WHERE w.thread_id = thread AND (w.ns, w.id) = (gone.ns, gone.id);
        DELETE FROM {schema}.frames WHERE thread_id = thread AND key <> ALL (some_keys);
    ELSE
        DELETE FROM {schema}.writes w USING unnest(some_ns, some_id) AS d (ns, id)
            WHERE w.thread_id = thread AND w.ns = d.ns AND w.id = d.id;
        DELETE FROM {schema}.rows r USING unnest(some_ns, some_id) AS d (ns, id)
            WHERE r.thread_id = thread AND r.ns = d.ns AND r.id = d.id;
        DELETE FROM {schema}.frames WHERE thread_id = thread AND key = ANY (some_keys);
    END IF;
    UPDATE {schema}.rows r SET parent = l.parent, via = l.via, hidden = l.hidden
        FROM unnest(link_ns, link_id, link_parent, link_via, link_hidden) AS l (ns, id, parent, via, hidden)
        WHERE r.thread_id = thread AND r.ns = l.ns AND r.id = l.id;
    IF EXISTS (SELECT 1 FROM {schema}.rows WHERE thread_id = thread) THEN
        UPDATE {schema}.threads SET rev = rev + 1, until_us = CASE WHEN ttl_us <> 0 THEN
            {schema}.end_1(thread, ttl_us, until_us, {schema}.waits_1(thread)) END WHERE thread_id = thread;
    ELSE
        PERFORM {schema}.drop_1(thread);
    END IF;
    RETURN true;
END $$;
