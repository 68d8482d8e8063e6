-- For people who look into the database; the savers do not use it. What is encrypted is not shown.
CREATE INDEX cells_sessions ON {schema}.cells (rev) WHERE kind = 'session';

-- The record of a session; NULL for what is sealed, and for texts that jsonb cannot hold.
CREATE FUNCTION {schema}.session_record_1(value bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE WHEN substring(value FOR 1) = '\x7b' THEN convert_from(value, 'UTF8')::jsonb END;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;

CREATE FUNCTION {schema}.time_1(us bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT timestamptz '1970-01-01 00:00:00Z' + us * interval '1 microsecond' $$;

CREATE VIEW {schema}.sessions AS SELECT
    s.session_id, s.record ->> 'user' AS user_id, s.record ->> 'agent' AS agent, (s.record ->> 'version')::bigint AS version,
    CASE WHEN s.ends_us <= {schema}.clock_us_1() THEN 'expired' WHEN s.state = 'deleting' THEN 'closed' ELSE s.state END
        AS status,
    s.record -> 'metadata' AS metadata,
    {schema}.time_1(coalesce(nullif((s.record ->> 'created_us')::bigint, 0), s.rev)) AS created_at,
    {schema}.time_1(s.rev) AS updated_at, {schema}.time_1(s.active_us) AS active_at, {schema}.time_1(s.ends_us) AS expires_at,
    (s.record ->> 'messages')::bigint AS message_count, (s.record ->> 'size_bytes')::bigint AS size_bytes,
    nullif(s.record -> 'left', 'null') AS "left"
FROM (
    SELECT r.*, CASE WHEN r.state = 'idle' OR (r.state = 'waiting' AND (r.record ->> 'expire_waiting')::boolean)
        THEN r.active_us + (r.record ->> 'idle_us')::bigint END AS ends_us
    FROM (
        SELECT c.thread_id AS session_id, c.rev, c.until_us, p.record, p.record ->> 'state' AS state,
            coalesce(nullif((p.record ->> 'active_us')::bigint, 0), c.rev) AS active_us
        FROM {schema}.cells c CROSS JOIN LATERAL (SELECT {schema}.session_record_1(c.value) AS record OFFSET 0) AS p
        WHERE c.kind = 'session') AS r
    WHERE r.until_us IS NULL OR r.until_us > {schema}.clock_us_1()) AS s;
