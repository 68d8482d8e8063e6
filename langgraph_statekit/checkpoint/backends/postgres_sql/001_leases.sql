-- `until_us` is by this server's clock.
CREATE TABLE {schema}.leases (
    thread_id text COLLATE "C" PRIMARY KEY,
    holder text NOT NULL,
    owner text NOT NULL,
    token bigint NOT NULL,
    until_us bigint NOT NULL
) WITH (fillfactor = 70);

-- Whether a save with this token comes too late; else nobody can take the lease before the save is made.
CREATE FUNCTION {schema}.fenced_1(thread text, fence bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF fence IS NULL THEN
        RETURN false;
    END IF;
    PERFORM 1 FROM {schema}.leases WHERE thread_id = thread AND token = fence FOR SHARE;
    RETURN NOT FOUND;
END $$;

-- Decides as claims.py does.
CREATE FUNCTION {schema}.claim_1(thread text, by text, label text, ttl_us bigint, renewed bigint, steal boolean)
RETURNS SETOF {schema}.leases LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    held {schema}.leases;
    now_us bigint;
BEGIN
    LOOP
        SELECT * INTO held FROM {schema}.leases WHERE thread_id = thread FOR UPDATE;
        EXIT WHEN FOUND;
        IF renewed IS NOT NULL THEN
            RETURN;
        END IF;
        INSERT INTO {schema}.leases VALUES (thread, '', '', 0, 0) ON CONFLICT DO NOTHING;
    END LOOP;
    now_us := {schema}.clock_us_1();
    IF renewed IS NULL AND (held.until_us <= now_us OR steal) THEN
        held := (thread, by, label, greatest(now_us, held.token + 1), 0);
    ELSIF (renewed IS NULL AND held.holder <> by) OR renewed <> held.token THEN
        RETURN NEXT held;
        RETURN;
    END IF;
    RETURN QUERY UPDATE {schema}.leases l SET holder = held.holder, owner = held.owner, token = held.token,
        until_us = now_us + ttl_us WHERE l.thread_id = thread RETURNING l.*;
    PERFORM {schema}.live_on_1(thread, true);
END $$;

CREATE FUNCTION {schema}.delete_1(thread text) RETURNS void LANGUAGE sql AS $$
    DELETE FROM {schema}.leases WHERE thread_id = thread;
    SELECT {schema}.drop_1(thread);
$$;
