-- Everything that Keylatch has in a database, in a schema of its own.
--
-- Whoever writes rows of a name holds that name's advisory lock: (1802728812, a hash of the name). Names that
-- are not there have no row to lock, and the row that a commit is about to write is locked by the same call.
-- Names and ids are bytes: they may have characters that text in PostgreSQL cannot have.

CREATE SCHEMA IF NOT EXISTS keylatch;

-- Which version of this file the schema has.
CREATE TABLE keylatch.schema (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL
);

-- Versions and seqs. Each commit takes some eight at once: see keylatch.draw.
CREATE SEQUENCE keylatch.numbers AS bigint INCREMENT BY 8;

-- Has a row, but after a crash: then PostgreSQL empties tables that are not logged. See keylatch.after_crash.
CREATE UNLOGGED TABLE keylatch.since_crash (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    at timestamptz NOT NULL
);

-- Who holds. Rows of one page often change: with room there, only the page changes and no index.
CREATE TABLE keylatch.heads (
    name bytea PRIMARY KEY,
    version bigint NOT NULL,
    time_ms bigint NOT NULL,
    -- It may be swept then; never, if there is none.
    forget_ms bigint,
    bytes bytea NOT NULL
) WITH (
    fillfactor = 50, vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000
);

-- Who waits.
CREATE TABLE keylatch.waiters (
    name bytea NOT NULL,
    seq bigint NOT NULL,
    id bytea NOT NULL,
    time_ms bigint NOT NULL,
    alive_until_ms bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (name, seq),
    UNIQUE (name, id)
) WITH (
    fillfactor = 50, vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000
);

-- Milliseconds since 1970.
CREATE FUNCTION keylatch.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT floor(date_part('epoch', clock_timestamp()) * 1000)::bigint $$;

-- For this transaction: locks end before the client gives up, so that it knows that nothing has happened; and
-- plans that are made while there is next to nothing in the tables do for any number of rows. A connection that
-- stays the same one all the time has this and what the functions need besides from its start, which costs less,
-- and says so.
CREATE FUNCTION keylatch.set_up() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('keylatch.is_set_up', true) = 'on' THEN RETURN ''; END IF;
    RETURN set_config('lock_timeout', '4s', true) || set_config('enable_seqscan', 'off', true);
END $$;

-- Some names at one moment, each row a part: 0 the time, 1 a head, 2 a waiter.
CREATE FUNCTION keylatch.read(names bytea[]) RETURNS TABLE (
    what integer, name bytea, first bigint, second bigint, third bigint, bytes bytea
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    done text := keylatch.set_up();
BEGIN
    RETURN QUERY
        SELECT 0, NULL::bytea, keylatch.now_ms(), 0::bigint, 0::bigint, NULL::bytea
        UNION ALL SELECT 1, h.name, h.version, h.time_ms, 0, h.bytes
            FROM keylatch.heads h WHERE h.name = ANY (names)
        UNION ALL SELECT 2, w.name, w.seq, w.time_ms, w.alive_until_ms, w.bytes
            FROM keylatch.waiters w WHERE w.name = ANY (names);
END $$;

-- What a crash forgets of the last moments (commits that nobody waited for, see keylatch.commit) took numbers that
-- the sequence would give again. So it goes on from the time of day in microseconds, or well behind the last
-- number that is known. A new schema begins like this too, and so does a database that was restored.
CREATE FUNCTION keylatch.after_crash() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1802728813, 0);
    IF NOT EXISTS (SELECT FROM keylatch.since_crash s WHERE s.one) THEN
        PERFORM setval('keylatch.numbers', greatest(
            nextval('keylatch.numbers') + 8000000,
            (date_part('epoch', clock_timestamp()) * 1000000)::bigint));
        INSERT INTO keylatch.since_crash (at) VALUES (clock_timestamp());
    END IF;
END $$;

-- So many numbers in a row: the first of them. Others may draw in between; then it begins again.
CREATE FUNCTION keylatch.draw(wanted bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    first bigint := nextval('keylatch.numbers');
    last bigint := first;
    next bigint;
BEGIN
    WHILE last + 8 - first < wanted LOOP
        next := nextval('keylatch.numbers');
        IF next <> last + 8 THEN first := next; END IF;
        last := next;
    END LOOP;
    RETURN first;
END $$;

-- One change of one name that removes and appends nobody, where nobody waits: most are like that, and it costs
-- half. Arguments as below. If nothing fits, what there is; nothing at all, if it is not such a case.
CREATE FUNCTION keylatch.commit_one(
    lock integer, in_name bytea, expect bigint, write smallint, in_bytes bytea, keep_ms bigint, durable boolean,
    OUT now_ms bigint, OUT version bigint, OUT found_version bigint, OUT found_time bigint, OUT found_bytes bytea
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    done text;
    is_set_up boolean;
    crashed boolean;
    waited bigint;
    forget_now bigint;
BEGIN
    is_set_up := coalesce(current_setting('keylatch.is_set_up', true) = 'on', false);
    IF NOT is_set_up THEN
        IF current_setting('transaction_isolation') <> 'read committed' THEN RETURN; END IF;
        done := set_config('lock_timeout', '4s', true);
        done := set_config('enable_seqscan', 'off', true);
    END IF;
    done := pg_advisory_xact_lock(1802728812, lock);
    SELECT s.at IS NULL, w.seq, h.version, h.time_ms, h.forget_ms, h.bytes
        INTO crashed, waited, found_version, found_time, forget_now, found_bytes
        FROM (SELECT) one
        LEFT JOIN keylatch.since_crash s ON s.one
        LEFT JOIN keylatch.heads h ON h.name = in_name
        LEFT JOIN LATERAL (
            SELECT w.seq FROM keylatch.waiters w WHERE w.name = in_name ORDER BY w.seq DESC LIMIT 1
        ) w ON true;
    IF crashed OR waited IS NOT NULL THEN RETURN; END IF;
    now_ms := floor(date_part('epoch', clock_timestamp()) * 1000)::bigint;
    IF NOT (CASE expect
        WHEN -1 THEN found_version IS NULL
        WHEN 0 THEN found_version IS NOT NULL
        ELSE found_version IS NOT NULL AND found_version = expect END)
    THEN
        RETURN;
    END IF;
    version := nextval('keylatch.numbers');
    IF write = 2 THEN
        DELETE FROM keylatch.heads h WHERE h.name = in_name;
    ELSIF found_version IS NULL THEN
        INSERT INTO keylatch.heads VALUES (in_name, version, now_ms, now_ms + keep_ms, in_bytes);
    ELSE
        UPDATE keylatch.heads h
            SET version = commit_one.version, time_ms = now_ms, forget_ms = now_ms + keep_ms, bytes = in_bytes
            WHERE h.name = in_name;
    END IF;
    IF NOT durable AND (found_version IS NULL OR forget_now <= now_ms + 600000) THEN
        done := set_config('synchronous_commit', 'off', true);
    ELSIF NOT is_set_up AND current_setting('synchronous_commit') = 'off' THEN
        done := set_config('synchronous_commit', 'on', true);
    END IF;
    found_bytes := NULL;
END $$;

-- Several changes, each all or nothing, and what came of each. Parallel arrays: c_ a change; n_ a name of a change,
-- in the order of the changes; r_ a waiter to remove, in the order of the names; a_ a waiter to append, in
-- the order of the changes; t_ to which n_ it goes, in the order of the waiters.
--
-- n_expect: -1 neither head nor queue, 0 a head, else its version. n_last: no larger seq is there, if not null.
-- n_write: 0 keep, 1 put, 2 delete. n_own: if no larger seq is there, nobody has to be told who is not told anyway.
--
-- It is a procedure because it commits before it tells: NOTIFY has one lock for all databases, which is
-- held until the disk has synced what is committed with it.
CREATE PROCEDURE keylatch.commit(
    locks integer[],
    c_numbers bigint[], c_names integer[], c_appends integer[], c_durable boolean[],
    n_name bytea[], n_expect bigint[], n_last bigint[], n_write smallint[], n_bytes bytea[],
    n_keep_ms bigint[], n_tell boolean[], n_own bigint[], n_removes integer[],
    r_seq bigint[], r_id bytea[],
    a_id bytea[], a_bytes bytea[], a_live_ms bigint[], a_names integer[],
    t_n integer[],
    -- What there was before; the version is null where something was otherwise.
    INOUT now_ms bigint, INOUT version bigint[], INOUT found_version bigint[], INOUT found_last bigint[],
    -- What there is of the names of those changes.
    INOUT head_n integer[], INOUT head_version bigint[], INOUT head_time bigint[], INOUT head_bytes bytea[],
    INOUT wait_n integer[], INOUT wait_seq bigint[], INOUT wait_time bigint[], INOUT wait_until bigint[],
    INOUT wait_bytes bytea[]
) LANGUAGE plpgsql AS $$
DECLARE
    done text;
    lock integer;
    durable boolean := false;
    far_ms bigint;
    -- Where we are in c_, n_, r_, a_ and t_; the last two are counted twice, by the checks and by the writes.
    n integer := 0; r integer := 0; a integer := 0; t integer := 0;
    n_first integer; a_first integer; t_first integer;
    -- For each name, where its r_ begin and end.
    r_from integer[] := '{}'; r_to integer[] := '{}';
    fits boolean;
    head_now bigint; forget_now bigint; last_now bigint;
    -- For each name, whether there is a head that would not end soon by itself.
    lasts boolean[] := '{}';
    drawn bigint;
    wrong integer[] := '{}';
    tells text[] := '{}';
BEGIN
    -- Each statement must see what was committed before it began.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        ROLLBACK;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    END IF;
    done := keylatch.set_up();
    FOREACH lock IN ARRAY locks LOOP
        done := pg_advisory_xact_lock(1802728812, lock);
    END LOOP;
    IF NOT EXISTS (SELECT FROM keylatch.since_crash s WHERE s.one) THEN
        done := keylatch.after_crash();
        durable := true;
    END IF;
    now_ms := floor(date_part('epoch', clock_timestamp()) * 1000)::bigint;
    far_ms := now_ms + 600000;
    found_version := '{}'; found_last := '{}'; version := '{}';

    FOR c IN 1 .. cardinality(c_numbers) LOOP
        fits := true; n_first := n + 1; a_first := a + 1; t_first := t + 1;
        FOR i IN 1 .. c_names[c] LOOP
            n := n + 1;
            r_from := r_from || (r + 1);
            r := r + n_removes[n];
            r_to := r_to || r;
            SELECT h.version, h.forget_ms, w.seq INTO head_now, forget_now, last_now
                FROM (SELECT) one
                LEFT JOIN keylatch.heads h ON h.name = n_name[n]
                LEFT JOIN LATERAL (
                    SELECT w.seq FROM keylatch.waiters w WHERE w.name = n_name[n] ORDER BY w.seq DESC LIMIT 1
                ) w ON true;
            lasts := lasts || (head_now IS NOT NULL AND (forget_now IS NULL OR forget_now > far_ms));
            found_version := found_version || coalesce(head_now, 0);
            found_last := found_last || coalesce(last_now, 0);
            fits := fits
                AND CASE n_expect[n]
                    WHEN -1 THEN head_now IS NULL AND last_now IS NULL
                    WHEN 0 THEN head_now IS NOT NULL
                    ELSE head_now IS NOT NULL AND head_now = n_expect[n] END
                AND (n_last[n] IS NULL OR last_now IS NULL OR last_now <= n_last[n]);
            IF fits AND n_removes[n] > 0 THEN
                fits := n_removes[n] = (
                    SELECT count(*) FROM unnest(r_seq[r_from[n]:r], r_id[r_from[n]:r]) gone (seq, id)
                    JOIN keylatch.waiters w ON w.name = n_name[n] AND w.seq = gone.seq AND w.id = gone.id);
            END IF;
        END LOOP;
        -- Nobody stands in a queue twice.
        FOR i IN 1 .. c_appends[c] LOOP
            a := a + 1;
            FOR k IN 1 .. a_names[a] LOOP
                t := t + 1;
                IF fits AND NOT (a_id[a] = ANY (r_id[r_from[t_n[t]]:r_to[t_n[t]]])) THEN
                    fits := NOT EXISTS (
                        SELECT FROM keylatch.waiters w WHERE w.name = n_name[t_n[t]] AND w.id = a_id[a]);
                END IF;
            END LOOP;
        END LOOP;
        IF NOT fits THEN
            version := version || NULL::bigint;
            FOR i IN n_first .. n LOOP wrong := wrong || i; END LOOP;
            CONTINUE;
        END IF;

        drawn := CASE WHEN c_numbers[c] + c_appends[c] <= 8 THEN nextval('keylatch.numbers')
            ELSE keylatch.draw(c_numbers[c] + c_appends[c]) END;
        version := version || drawn;
        durable := durable OR c_durable[c];
        FOR i IN n_first .. n LOOP
            IF n_write[i] = 1 AND found_version[i] > 0 THEN
                UPDATE keylatch.heads h
                    SET version = drawn, time_ms = now_ms, forget_ms = now_ms + n_keep_ms[i], bytes = n_bytes[i]
                    WHERE h.name = n_name[i];
            ELSIF n_write[i] = 1 THEN
                INSERT INTO keylatch.heads
                    VALUES (n_name[i], drawn, now_ms, now_ms + n_keep_ms[i], n_bytes[i]);
            ELSIF n_write[i] = 2 THEN
                DELETE FROM keylatch.heads h WHERE h.name = n_name[i];
            END IF;
            durable := durable OR (n_write[i] <> 0 AND lasts[i]);
            IF n_removes[i] > 0 THEN
                DELETE FROM keylatch.waiters w
                    WHERE w.name = n_name[i] AND w.seq = ANY (r_seq[r_from[i]:r_to[i]]);
            END IF;
            IF n_tell[i] OR (found_last[i] > n_own[i] AND (n_write[i] <> 0 OR n_removes[i] > 0)) THEN
                tells := tells || (drawn || ' ' || array_to_string(r_seq[r_from[i]:r_to[i]], ',') || ' '
                    || encode(n_name[i], 'hex'));
            END IF;
        END LOOP;
        t := t_first - 1;
        FOR i IN a_first .. a LOOP
            FOR k IN 1 .. a_names[i] LOOP
                t := t + 1;
                INSERT INTO keylatch.waiters VALUES (
                    n_name[t_n[t]], drawn + c_numbers[c] + (i - a_first), a_id[i], now_ms,
                    now_ms + a_live_ms[i], a_bytes[i]);
            END LOOP;
        END LOOP;
    END LOOP;

    IF cardinality(wrong) > 0 THEN
        SELECT array_agg(x.n), array_agg(x.version), array_agg(x.time_ms), array_agg(x.bytes)
            INTO head_n, head_version, head_time, head_bytes
            FROM (SELECT asked.n, h.* FROM unnest(wrong) asked (n)
                JOIN keylatch.heads h ON h.name = n_name[asked.n]) x;
        SELECT array_agg(x.n), array_agg(x.seq), array_agg(x.time_ms), array_agg(x.alive_until_ms),
                array_agg(x.bytes)
            INTO wait_n, wait_seq, wait_time, wait_until, wait_bytes
            FROM (SELECT asked.n, w.* FROM unnest(wrong) asked (n)
                JOIN keylatch.waiters w ON w.name = n_name[asked.n] ORDER BY asked.n, w.seq) x;
    END IF;

    -- What is granted must survive a crash, whatever the database is set to. What only ends something, or
    -- queues, need not be waited for: if it is forgotten, a lease ends it, or its waiter asks again.
    IF NOT durable THEN
        done := set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') = 'off' THEN
        done := set_config('synchronous_commit', 'on', true);
    END IF;
    IF cardinality(tells) > 0 THEN
        COMMIT;
        -- Not to fail now by a limit that somebody has set: it has happened.
        done := set_config('lock_timeout', '0', true);
        done := set_config('synchronous_commit', 'off', true);
        PERFORM pg_notify('keylatch', CASE WHEN length(told) < 7900 THEN told ELSE '*' END)
            FROM unnest(tells) told;
    END IF;
END $$;

-- These waiters live, each if it stands in all of its queues and has not lapsed: which ones. Parallel arrays, a
-- waiter and one of its names each.
CREATE FUNCTION keylatch.touch(
    locks integer[], who integer[], in_name bytea[], with_seq bigint[], with_id bytea[], live_ms bigint
) RETURNS integer[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    done text;
    lock integer;
    now_ms bigint;
    touched integer[];
BEGIN
    done := keylatch.set_up();
    done := set_config('synchronous_commit', 'off', true);
    FOREACH lock IN ARRAY locks LOOP
        done := pg_advisory_xact_lock(1802728812, lock);
    END LOOP;
    now_ms := keylatch.now_ms();
    WITH asked AS (
        SELECT * FROM unnest(who, in_name, with_seq, with_id) asked (who, name, seq, id)
    ), alive AS (
        SELECT asked.who FROM asked
        LEFT JOIN keylatch.waiters w
            ON w.name = asked.name AND w.seq = asked.seq AND w.id = asked.id AND w.alive_until_ms > now_ms
        GROUP BY asked.who HAVING count(w.seq) = count(*)
    ), updated AS (
        UPDATE keylatch.waiters w SET alive_until_ms = now_ms + live_ms
        FROM asked JOIN alive ON alive.who = asked.who
        WHERE w.name = asked.name AND w.seq = asked.seq
    )
    SELECT coalesce(array_agg(alive.who), '{}') INTO touched FROM alive;
    RETURN touched;
END $$;
