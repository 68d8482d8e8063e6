-- What a lease tells of its holder, and leases by their ends; `until_us` is 0 once it was given back.
ALTER TABLE {schema}.leases
    ADD about text NOT NULL DEFAULT '',
    ADD beat_us bigint NOT NULL DEFAULT 0,
    ADD progress_us bigint NOT NULL DEFAULT 0,
    ADD control text NOT NULL DEFAULT '';
CREATE INDEX leases_end ON {schema}.leases (until_us, thread_id) WHERE until_us > 0;

-- Decides as claims.py does.
CREATE FUNCTION {schema}.claim_2(
    thread text, by text, label text, ttl_us bigint, renewed bigint, steal boolean, instead bigint, told text,
    idle_us bigint, word text
) RETURNS SETOF {schema}.leases LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    held {schema}.leases;
    now_us bigint;
    mine boolean;
BEGIN
    LOOP
        SELECT * INTO held FROM {schema}.leases WHERE thread_id = thread FOR UPDATE;
        EXIT WHEN FOUND;
        IF renewed IS NOT NULL OR instead IS NOT NULL THEN
            RETURN;
        END IF;
        INSERT INTO {schema}.leases VALUES (thread, '', '', 0, 0) ON CONFLICT DO NOTHING;
    END LOOP;
    now_us := {schema}.clock_us_1();
    mine := renewed IS NOT NULL OR (held.until_us > now_us AND held.holder = by);
    IF renewed <> held.token THEN
        RETURN NEXT held;
        RETURN;
    ELSIF word IS NOT NULL THEN
        RETURN QUERY UPDATE {schema}.leases l SET control = word WHERE l.thread_id = thread RETURNING l.*;
        RETURN;
    ELSIF mine THEN
        held.until_us := CASE WHEN ttl_us = 0 AND held.control = '' THEN 0 ELSE now_us + ttl_us END;
        held.progress_us := greatest(held.progress_us, now_us - idle_us);
    ELSIF (held.until_us <= now_us OR steal) AND coalesce(held.token = instead, true) THEN
        held.holder := by;
        held.owner := label;
        held.token := greatest(now_us, held.token + 1);
        held.until_us := now_us + ttl_us;
        held.progress_us := now_us;
        held.control := '';
    ELSE
        RETURN NEXT held;
        RETURN;
    END IF;
    RETURN QUERY UPDATE {schema}.leases l SET holder = held.holder, owner = held.owner, token = held.token,
        until_us = held.until_us, about = told, beat_us = now_us, progress_us = held.progress_us, control = held.control
        WHERE l.thread_id = thread RETURNING l.*;
    PERFORM {schema}.live_on_1(thread, true);
END $$;

-- For workers of the release before.
CREATE OR REPLACE FUNCTION {schema}.claim_1(
    thread text, by text, label text, ttl_us bigint, renewed bigint, steal boolean
) RETURNS SETOF {schema}.leases LANGUAGE sql AS $$
    SELECT * FROM {schema}.claim_2(thread, by, label, ttl_us, renewed, steal, NULL, '', 0, NULL)
$$;
