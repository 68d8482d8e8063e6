-- Rows of all namespaces in the order of their seq.
CREATE INDEX rows_order ON {schema}.rows (thread_id, seq) WHERE NOT hidden;

-- A page of what is listed, newest first, as `Query` in records.py tells. An index is read from its end: the planner,
-- which cannot know how long a thread is, would at times read all of it and sort that, hence the settings.
CREATE FUNCTION {schema}.rows_1(thread text, space text, bound text, below bigint, most bigint)
RETURNS SETOF {schema}.rows LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
    top bigint := coalesce(below, 9223372036854775807);
    at bigint;
    spaces text[];
    seqs bigint[];
BEGIN
    IF space IS NOT NULL THEN
        at := (SELECT r.seq FROM {schema}.rows r WHERE r.thread_id = thread AND r.ns = space AND r.id = bound);
        RETURN QUERY SELECT * FROM {schema}.rows r
            WHERE r.thread_id = thread AND r.ns = space AND NOT r.hidden AND r.seq < least(top, at)
                AND (bound IS NULL OR at IS NOT NULL OR r.id < bound)
            ORDER BY r.seq DESC LIMIT most;
        RETURN;
    END IF;
    IF bound IS NOT NULL THEN
        SELECT array_agg(r.ns), array_agg(r.seq) INTO spaces, seqs FROM {schema}.rows r
            WHERE r.thread_id = thread AND r.id = bound;
    END IF;
    RETURN QUERY SELECT * FROM {schema}.rows r
        WHERE r.thread_id = thread AND NOT r.hidden AND r.seq < top
            AND (bound IS NULL OR coalesce(r.seq < seqs[array_position(spaces, r.ns)], r.id < bound))
        ORDER BY r.seq DESC LIMIT most;
END $$;
