-- What follows is for people who look into the database; the savers do not use it.

-- The time in a checkpoint id (UUID version 6).
CREATE FUNCTION {schema}.time_of_1(id text) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN id ~ '^[0-9a-fA-F]{{8}}-[0-9a-fA-F]{{4}}-6[0-9a-fA-F]{{3}}-' THEN timestamptz '1970-01-01 00:00:00Z'
        + (('x0' || substring(id FOR 8) || substring(id FROM 10 FOR 4) || substring(id FROM 16 FOR 3))::bit(64)::bigint
            - 122192928000000000) / 10 * interval '1 microsecond' END
$$;

-- The frame keys of a row, one by one.
CREATE FUNCTION {schema}.keys_1(packed bytea) RETURNS SETOF bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 10 AS $$
    SELECT substring(packed FROM start FOR 16) FROM generate_series(1, length(packed), 16) AS start
$$;

-- `frames` and `size_bytes` count what came with the checkpoint: versions of channels that its parent does not have. They
-- are looked up one by one, or all of the thread's would be read for each checkpoint.
CREATE VIEW {schema}.audit AS SELECT
    r.thread_id, r.ns AS checkpoint_ns, r.id AS checkpoint_id, r.parent AS parent_id, r.seq,
    {schema}.time_of_1(r.id) AS created_at, r.run_id,
    r.metadata ->> 'source' AS source,
    CASE jsonb_typeof(r.metadata -> 'step') WHEN 'number' THEN (r.metadata ->> 'step')::numeric END AS step, r.metadata,
    (SELECT count(*) FROM {schema}.writes w WHERE (w.thread_id, w.ns, w.id) = (r.thread_id, r.ns, r.id)) AS writes,
    (SELECT count((SELECT 1 FROM {schema}.frames f WHERE f.thread_id = r.thread_id AND f.key = new.key)) FROM (
        SELECT {schema}.keys_1(r.keys) EXCEPT SELECT {schema}.keys_1(p.keys) FROM {schema}.rows p
        WHERE (p.thread_id, p.ns, p.id) = (r.thread_id, r.ns, r.parent)) AS new (key)) AS frames,
    octet_length(r.body) + octet_length(r.keys) + octet_length(r.deltas)
    + (SELECT coalesce(sum(octet_length(w.data)), 0) FROM {schema}.writes w
        WHERE (w.thread_id, w.ns, w.id) = (r.thread_id, r.ns, r.id))
    + (SELECT coalesce(sum((
        SELECT octet_length(f.data) FROM {schema}.frames f WHERE f.thread_id = r.thread_id AND f.key = new.key)), 0) FROM (
        SELECT {schema}.keys_1(r.keys) EXCEPT SELECT {schema}.keys_1(p.keys) FROM {schema}.rows p
        WHERE (p.thread_id, p.ns, p.id) = (r.thread_id, r.ns, r.parent)) AS new (key)) AS size_bytes
FROM {schema}.rows r WHERE NOT r.hidden AND NOT EXISTS (
    SELECT 1 FROM {schema}.threads t WHERE t.thread_id = r.thread_id AND t.until_us <= {schema}.clock_us_1());

CREATE VIEW {schema}.audit_threads AS SELECT
    t.thread_id, r.checkpoints, r.runs, r.first_at, r.last_at,
    r.bytes + (SELECT coalesce(sum(octet_length(f.data)), 0) FROM {schema}.frames f WHERE f.thread_id = t.thread_id)
    + (SELECT coalesce(sum(octet_length(w.data)), 0) FROM {schema}.writes w WHERE w.thread_id = t.thread_id) AS size_bytes
FROM {schema}.threads t CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE NOT hidden) AS checkpoints, count(DISTINCT run_id) AS runs,
        min({schema}.time_of_1(id)) AS first_at, max({schema}.time_of_1(id)) AS last_at,
        coalesce(sum(octet_length(body) + octet_length(keys) + octet_length(deltas)), 0) AS bytes
    FROM {schema}.rows WHERE thread_id = t.thread_id) AS r
WHERE t.seq > 0 AND (t.until_us IS NULL OR t.until_us > {schema}.clock_us_1());
