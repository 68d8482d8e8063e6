-- jsonb holds neither NUL nor half of a surrogate pair. U+FFFD stands for them, so that no text that somebody chose keeps
-- a session out of an auditor's sight; each escaped backslash is first written in another way, or it could be part of one.
CREATE OR REPLACE FUNCTION {schema}.session_record_1(value bytea) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    told text;
BEGIN
    IF substring(value FOR 1) = '\x7b' THEN
        told := convert_from(value, 'UTF8');
    END IF;
    RETURN told::jsonb;
EXCEPTION WHEN data_exception THEN
    BEGIN
        RETURN regexp_replace(
            replace(told, $is$\\$is$, $is$\u005c$is$),
            $is$\\u0000|\\ud[89ab]..(?!\\ud[c-f])|(?<!\\ud[89ab]..)\\ud[c-f]..$is$, $is$\\ufffd$is$, 'gi')::jsonb;
    EXCEPTION WHEN data_exception THEN
        RETURN NULL;
    END;
END $$;
