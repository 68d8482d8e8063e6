-- Cells: small records with compare-and-set, see cells.py. The names of a cell's lists are '', of all of its kind, and
-- '=' before each of its groups.
CREATE TABLE {schema}.cells (
    thread_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    lists text[] NOT NULL,
    rev bigint NOT NULL,
    operation text NOT NULL,
    until_us bigint,
    PRIMARY KEY (thread_id, kind, key)
) WITH (fillfactor = 70);
CREATE INDEX cells_end ON {schema}.cells (until_us) WHERE until_us IS NOT NULL;

CREATE TABLE {schema}.cell_lists (
    kind text COLLATE "C" NOT NULL,
    list text COLLATE "C" NOT NULL,
    rev bigint NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, list, rev, thread_id, key)
);

CREATE FUNCTION {schema}.unlist_cell_1(held {schema}.cells) RETURNS void LANGUAGE sql AS $$
    DELETE FROM {schema}.cell_lists l USING unnest(held.lists) AS n (list)
        WHERE (l.kind, l.list, l.rev, l.thread_id, l.key) = (held.kind, n.list, held.rev, held.thread_id, held.key)
$$;

-- Decides as cells.py does: `made` is NULL if the token comes too late; `value` is NULL if there is no cell after it.
CREATE FUNCTION {schema}.change_cell_1(
    thread text, sort text, name text, data bytea, names text[], expect bigint, fence bigint, life bigint, asked text,
    OUT made boolean, OUT now_us bigint, OUT value bytea, OUT lists text[], OUT rev bigint, OUT operation text
) RETURNS record LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    held {schema}.cells;
    there boolean;
BEGIN
    IF {schema}.fenced_1(thread, fence) THEN
        RETURN;
    END IF;
    LOOP
        SELECT * INTO held FROM {schema}.cells c WHERE (c.thread_id, c.kind, c.key) = (thread, sort, name) FOR UPDATE;
        now_us := {schema}.clock_us_1();
        there := FOUND AND (held.until_us IS NULL OR held.until_us > now_us);
        made := true;
        IF there AND held.operation = asked THEN
            EXIT;
        ELSIF NOT there AND data IS NULL THEN
            RETURN;
        ELSIF expect <> (CASE WHEN there THEN held.rev ELSE 0 END) THEN
            made := false;
            EXIT WHEN there;
            RETURN;
        ELSIF held.rev IS NULL THEN
            INSERT INTO {schema}.cells VALUES (thread, sort, name, data, names, now_us, asked, now_us + life)
                ON CONFLICT DO NOTHING RETURNING * INTO held;
            CONTINUE WHEN NOT FOUND;
        ELSE
            PERFORM {schema}.unlist_cell_1(held);
            IF data IS NULL THEN
                DELETE FROM {schema}.cells c WHERE (c.thread_id, c.kind, c.key) = (thread, sort, name);
                RETURN;
            END IF;
            UPDATE {schema}.cells c SET value = data, lists = names, rev = greatest(now_us, c.rev + 1),
                operation = asked, until_us = now_us + life
                WHERE (c.thread_id, c.kind, c.key) = (thread, sort, name) RETURNING * INTO held;
        END IF;
        INSERT INTO {schema}.cell_lists SELECT sort, n, held.rev, thread, name FROM unnest(names) AS n;
        EXIT;
    END LOOP;
    value := held.value;
    lists := held.lists;
    rev := held.rev;
    operation := held.operation;
END $$;

-- Removes some cells that have expired and that nobody is changing.
CREATE FUNCTION {schema}.sweep_cells_1(most integer) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    held {schema}.cells;
    gone bigint := 0;
BEGIN
    FOR held IN SELECT * FROM {schema}.cells WHERE until_us <= {schema}.clock_us_1()
        ORDER BY until_us LIMIT most FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM {schema}.unlist_cell_1(held);
        DELETE FROM {schema}.cells c
            WHERE (c.thread_id, c.kind, c.key) = (held.thread_id, held.kind, held.key);
        gone := gone + 1;
    END LOOP;
    RETURN gone;
END $$;
