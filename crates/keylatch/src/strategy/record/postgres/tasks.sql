-- Tasks, in the same schema. Made when they are first asked for.
--
-- Whoever changes a task locks its row, pool by pool; whoever takes one skips rows that others have locked, and so
-- waits for nobody. In one transaction changes come before takes. Several changes of one pool are one statement,
-- whose order is the planner's: should two of them wait in a circle, PostgreSQL ends one, and its changes are
-- sent again one by one.

CREATE TABLE keylatch.task_schema (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL
);

CREATE TABLE keylatch.tasks (
    pool bytea NOT NULL,
    key bytea NOT NULL,
    -- Of its last write, and of the last that was not a take, if that is another one.
    version bigint NOT NULL, time_ms bigint NOT NULL,
    wrote_version bigint, wrote_ms bigint,
    number bigint NOT NULL,
    -- 0 free, 1 claimed, 2 done, 3 failed.
    state smallint NOT NULL,
    priority integer NOT NULL,
    ready_ms bigint,
    -- Where it stands: 1 in the line of those that are due, 0 among those that will be.
    due smallint,
    claim_id bytea,
    claim bytea NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (pool, key)
) WITH (
    fillfactor = 70, vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000
);
CREATE INDEX tasks_line ON keylatch.tasks (pool, priority DESC, ready_ms, number) WHERE due = 1;
CREATE INDEX tasks_later ON keylatch.tasks (pool, ready_ms) WHERE due = 0;
CREATE INDEX tasks_number ON keylatch.tasks (pool, number);
CREATE INDEX tasks_failed ON keylatch.tasks (pool, number) WHERE state = 3;
-- Only of those that are claimed: whoever has done something with a task has got the answer to its claim.
CREATE UNIQUE INDEX tasks_claim ON keylatch.tasks (claim_id, pool) WHERE state = 1;

-- What a client reads of a task beside its bytes: eight numbers of eight bytes each.
CREATE FUNCTION keylatch.task_numbers(t keylatch.tasks) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT int8send(t.version) || int8send(t.time_ms)
        || int8send(coalesce(t.wrote_version, t.version)) || int8send(coalesce(t.wrote_ms, t.time_ms))
        || int8send(t.number) || int8send(t.state::bigint) || int8send(t.priority::bigint)
        || int8send(coalesce(t.ready_ms, -1))
$$;

-- Where somebody waits, until when that is known. After a crash they say it again.
CREATE UNLOGGED TABLE keylatch.task_waits (
    pool bytea PRIMARY KEY,
    until_ms bigint NOT NULL
);

-- Puts what became due into the line. One by one, by their keys: a join might read the whole pool.
CREATE FUNCTION keylatch.task_line_up(in_pool bytea, at_once integer, now_ms bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    later bytea;
BEGIN
    FOR later IN
        SELECT l.key FROM keylatch.tasks l
        WHERE l.pool = in_pool AND l.due = 0 AND l.ready_ms <= now_ms
        ORDER BY l.ready_ms LIMIT at_once FOR UPDATE SKIP LOCKED
    LOOP
        UPDATE keylatch.tasks t SET due = 1 WHERE t.pool = in_pool AND t.key = later;
    END LOOP;
END $$;

-- One take: what was taken, or nothing.
CREATE FUNCTION keylatch.task_take(
    in_pool bytea, in_key bytea, in_id bytea, in_claim bytea, lease_ms bigint, at_once integer, now_ms bigint
) RETURNS keylatch.tasks LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    done text;
    task keylatch.tasks;
BEGIN
    -- A repeat takes nothing more.
    SELECT * INTO task FROM keylatch.tasks t
        WHERE t.claim_id = in_id AND t.pool = in_pool AND t.state = 1 LIMIT 1;
    IF FOUND THEN RETURN task; END IF;
    IF in_key IS NOT NULL THEN
        SELECT * INTO task FROM keylatch.tasks t
            WHERE t.pool = in_pool AND t.key = in_key AND (t.due = 1 OR t.due = 0 AND t.ready_ms <= now_ms)
            FOR UPDATE SKIP LOCKED;
    ELSE
        done := keylatch.task_line_up(in_pool, at_once, now_ms);
        SELECT * INTO task FROM keylatch.tasks t WHERE t.pool = in_pool AND t.due = 1
            ORDER BY t.priority DESC, t.ready_ms, t.number LIMIT 1 FOR UPDATE SKIP LOCKED;
    END IF;
    IF NOT FOUND THEN RETURN NULL; END IF;
    UPDATE keylatch.tasks t SET
        version = nextval('keylatch.numbers'), time_ms = now_ms,
        wrote_version = coalesce(t.wrote_version, t.version), wrote_ms = coalesce(t.wrote_ms, t.time_ms),
        state = 1, ready_ms = CASE WHEN lease_ms > 0 THEN now_ms + lease_ms END,
        due = CASE WHEN lease_ms > 0 THEN 0 END, claim_id = in_id, claim = in_claim
        WHERE t.pool = task.pool AND t.key = task.key
        RETURNING * INTO task;
    RETURN task;
END $$;

-- Waits until those have ended who write at this moment, so that whatever they have not told is to be seen. It is for
-- somebody who has just noted that it waits. What goes alone looks for such a note in the statement that writes, and not
-- after its commit; but a statement locks its tables before it decides what it sees, so whoever has not locked the
-- table yet will see the note. This costs nothing those who write. What is not ours may stay open for hours, and is not
-- waited for.
CREATE FUNCTION keylatch.task_writers_end() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    those text[];
    here oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
    until timestamptz := clock_timestamp() + interval '3 s';
BEGIN
    LOOP
        those := ARRAY(SELECT l.virtualtransaction FROM pg_locks l
            WHERE l.locktype = 'relation' AND l.database = here AND l.relation = 'keylatch.tasks'::regclass
                AND l.mode = 'RowExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()
                AND (those IS NULL OR l.virtualtransaction = ANY (those)));
        EXIT WHEN cardinality(those) = 0 OR clock_timestamp() > until;
        PERFORM pg_sleep(0.001);
    END LOOP;
END $$;

-- What goes alone where nobody waits and everything is as expected: most is like that, and one statement is less work
-- than the procedure. The statements are files of their own, in tasks/. A connection that stays the same one
-- prepares them and needs no function; elsewhere a function keeps their plans. No row: it is not such a case, and
-- nothing has happened.
CREATE FUNCTION keylatch.task_set_up() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    done text;
BEGIN
    IF current_setting('keylatch.is_set_up', true) = 'on' THEN RETURN true; END IF;
    IF current_setting('transaction_isolation') <> 'read committed'
        OR NOT EXISTS (SELECT FROM keylatch.since_crash s WHERE s.one)
    THEN
        RETURN false;
    END IF;
    done := keylatch.set_up();
    IF current_setting('synchronous_commit') = 'off' THEN
        done := set_config('synchronous_commit', 'on', true);
    END IF;
    RETURN true;
END $$;

-- The time at which the statement began, the same in all of it, so that it can be looked for in an index.
CREATE FUNCTION keylatch.task_now() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT floor(date_part('epoch', statement_timestamp()) * 1000)::bigint
$$;

CREATE FUNCTION keylatch.task_take_one(bytea, bytea, bytea, bigint) RETURNS TABLE (
    key bytea, version bigint, time_ms bigint, wrote_version bigint, wrote_ms bigint, number bigint,
    priority integer, ready_ms bigint, bytes bytea
) LANGUAGE plpgsql VOLATILE ROWS 1 AS $$
BEGIN
    IF keylatch.task_set_up() THEN
        RETURN QUERY {take};
    END IF;
END $$;

CREATE FUNCTION keylatch.task_create_one(bytea, bytea, smallint, integer, bigint, bigint, bytea, bytea)
RETURNS TABLE (version bigint, time_ms bigint) LANGUAGE plpgsql VOLATILE ROWS 1 AS $$
BEGIN
    IF keylatch.task_set_up() THEN
        RETURN QUERY {create};
    END IF;
END $$;

CREATE FUNCTION keylatch.task_put_one(bytea, bytea, smallint, integer, bigint, bigint, bytea, bytea, bigint)
RETURNS TABLE (version bigint, time_ms bigint) LANGUAGE plpgsql VOLATILE ROWS 1 AS $$
BEGIN
    IF keylatch.task_set_up() THEN
        RETURN QUERY {put};
    END IF;
END $$;

CREATE FUNCTION keylatch.task_delete_one(bytea, bytea, bigint)
RETURNS TABLE (version bigint, time_ms bigint) LANGUAGE plpgsql VOLATILE ROWS 1 AS $$
BEGIN
    IF keylatch.task_set_up() THEN
        RETURN QUERY {delete};
    END IF;
END $$;

-- Some changes and some takes, each all or nothing, and what came of each. Parallel arrays: c_ a change, in the
-- order of pool and key; t_ a take. c_expect: null, there is none. c_write: 1 put, 2 delete. c_after: so long
-- after now; else c_at.
--
-- It is a procedure because it commits before it looks who waits, and before it tells: whoever noted that it waits
-- before it looked, and did not see what was committed here, is seen.
CREATE PROCEDURE keylatch.do_tasks(
    c_pool bytea[], c_key bytea[], c_expect bigint[], c_write smallint[], c_state smallint[],
    c_priority integer[], c_at bigint[], c_after bigint[], c_bytes bytea[], c_claim bytea[],
    t_pool bytea[], t_key bytea[], t_id bytea[], t_claim bytea[], t_lease bigint[],
    t_waits boolean[], at_once integer, noted_ms bigint,
    -- The versions of changes, null where it was otherwise; whether takes got something, and else when there
    -- will be.
    INOUT now_ms bigint, INOUT version bigint[], INOUT got boolean[], INOUT next_ms bigint[],
    -- Tasks: of which change, or behind those of which take.
    INOUT r_n integer[], INOUT r_key bytea[], INOUT r_numbers bytea[], INOUT r_bytes bytea[],
    INOUT r_claim bytea[],
    -- Whether somebody waits in a pool where something was done, or here.
    INOUT waits boolean
) LANGUAGE plpgsql AS $$
DECLARE
    done text;
    task keylatch.tasks;
    there boolean;
    ready bigint;
    drawn bigint;
    noted boolean;
    n integer;
    one integer;
    last integer;
    found_n bigint[];
    found_pool bytea[];
    found_keys bytea[];
    found_versions bigint[];
    found_due bigint[];
    changes integer := coalesce(cardinality(c_pool), 0);
    takes integer := coalesce(cardinality(t_pool), 0);
    told_pool bytea[] := '{}'; told_key bytea[] := '{}'; told_due bigint[] := '{}';
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        ROLLBACK;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    END IF;
    done := keylatch.set_up();
    IF current_setting('synchronous_commit') = 'off' THEN
        done := set_config('synchronous_commit', 'on', true);
    END IF;
    IF NOT EXISTS (SELECT FROM keylatch.since_crash s WHERE s.one) THEN
        done := keylatch.after_crash();
    END IF;
    waits := false;
    version := array_fill(NULL::bigint, ARRAY[changes]); got := '{}'; next_ms := '{}';
    r_n := '{}'; r_key := '{}'; r_numbers := '{}'; r_bytes := '{}'; r_claim := '{}';

    n := 1;
    WHILE n <= changes LOOP
        -- Of one pool, all at once: those that are as expected. The others are looked at one by one.
        last := n;
        WHILE last < changes AND c_pool[last + 1] = c_pool[n] LOOP last := last + 1; END LOOP;
        IF last > n THEN
            now_ms := floor(date_part('epoch', clock_timestamp()) * 1000)::bigint;
            WITH written AS (
                UPDATE keylatch.tasks t SET
                    version = c.drawn, time_ms = now_ms, wrote_version = NULL, wrote_ms = NULL,
                    state = c.state, priority = c.priority, ready_ms = c.ready,
                    due = CASE WHEN c.ready IS NOT NULL THEN (c.state = 0 AND c.ready <= now_ms)::integer END,
                    claim = c.claim, bytes = c.bytes
                    FROM (
                        SELECT u.*, coalesce(now_ms + u.after, u.at) AS ready,
                            nextval('keylatch.numbers') AS drawn
                        FROM unnest(c_key[n:last], c_expect[n:last], c_write[n:last], c_state[n:last],
                            c_priority[n:last], c_at[n:last], c_after[n:last], c_bytes[n:last], c_claim[n:last])
                            WITH ORDINALITY u (key, expect, write, state, priority, at, after, bytes, claim, place)
                    ) c
                    WHERE t.pool = c_pool[n] AND t.key = c.key AND t.version = c.expect AND c.write = 1
                    RETURNING c.place, t.key, t.version, t.ready_ms)
                SELECT array_agg(w.place), array_agg(w.key), array_agg(w.version),
                    array_agg(CASE WHEN w.ready_ms IS NOT NULL THEN greatest(0, w.ready_ms - now_ms) END),
                    array_agg(c_pool[n])
                INTO found_n, found_keys, found_versions, found_due, found_pool FROM written w;
            FOR i IN 1 .. coalesce(cardinality(found_n), 0) LOOP
                version[n - 1 + found_n[i]] := found_versions[i];
            END LOOP;
            told_pool := told_pool || found_pool; told_key := told_key || found_keys;
            told_due := told_due || found_due;
        END IF;
        one := n;
        n := last + 1;
        FOR n IN one .. last LOOP
        CONTINUE WHEN version[n] IS NOT NULL;
        now_ms := floor(date_part('epoch', clock_timestamp()) * 1000)::bigint;
        drawn := nextval('keylatch.numbers');
        ready := coalesce(now_ms + c_after[n], c_at[n]);
        -- If it was written since it was looked at, it has another version; if it is locked, this waits.
        IF c_write[n] = 2 THEN
            DELETE FROM keylatch.tasks t
                WHERE t.pool = c_pool[n] AND t.key = c_key[n] AND t.version = c_expect[n];
        ELSIF c_expect[n] IS NULL THEN
            INSERT INTO keylatch.tasks VALUES (
                c_pool[n], c_key[n], drawn, now_ms, NULL, NULL, drawn, c_state[n], c_priority[n], ready,
                CASE WHEN ready IS NOT NULL THEN (c_state[n] = 0 AND ready <= now_ms)::integer END,
                NULL, c_claim[n], c_bytes[n]) ON CONFLICT DO NOTHING;
        ELSE
            UPDATE keylatch.tasks t SET
                version = drawn, time_ms = now_ms, wrote_version = NULL, wrote_ms = NULL,
                state = c_state[n], priority = c_priority[n], ready_ms = ready,
                due = CASE WHEN ready IS NOT NULL THEN (c_state[n] = 0 AND ready <= now_ms)::integer END,
                claim = c_claim[n], bytes = c_bytes[n]
                WHERE t.pool = c_pool[n] AND t.key = c_key[n] AND t.version = c_expect[n];
        END IF;
        there := false;
        IF NOT FOUND THEN
            drawn := NULL;
            SELECT * INTO task FROM keylatch.tasks t WHERE t.pool = c_pool[n] AND t.key = c_key[n] FOR UPDATE;
            there := FOUND;
            now_ms := floor(date_part('epoch', clock_timestamp()) * 1000)::bigint;
        END IF;
        version[n] := drawn;
        IF drawn IS NULL AND there THEN
            r_n := array_append(r_n, n); r_key := array_append(r_key, task.key);
            r_numbers := array_append(r_numbers, keylatch.task_numbers(task));
            r_bytes := array_append(r_bytes, task.bytes); r_claim := array_append(r_claim, task.claim);
        ELSIF drawn IS NOT NULL AND c_write[n] = 1 THEN
            told_pool := array_append(told_pool, c_pool[n]); told_key := array_append(told_key, c_key[n]);
            told_due := array_append(told_due,
                CASE WHEN ready IS NOT NULL THEN greatest(0, ready - now_ms) END);
        END IF;
        END LOOP;
    END LOOP;

    n := 1;
    WHILE n <= takes LOOP
        -- Those who want any task of one pool are next to each other: they take with one look at the line.
        last := n;
        WHILE t_key[n] IS NULL AND last < takes AND t_pool[last + 1] = t_pool[n] AND t_key[last + 1] IS NULL LOOP
            last := last + 1;
        END LOOP;
        IF last > n AND 0 < ALL (t_lease[n:last])
            AND NOT EXISTS (SELECT FROM keylatch.tasks t WHERE t.claim_id = ANY (t_id[n:last]) AND t.state = 1)
        THEN
            now_ms := floor(date_part('epoch', clock_timestamp()) * 1000)::bigint;
            done := keylatch.task_line_up(t_pool[n], at_once, now_ms);
            found_keys := ARRAY(
                SELECT l.key FROM keylatch.tasks l WHERE l.pool = t_pool[n] AND l.due = 1
                ORDER BY l.priority DESC, l.ready_ms, l.number LIMIT last - n + 1 FOR UPDATE SKIP LOCKED);
            IF cardinality(found_keys) > 0 THEN
                WITH taken AS (
                    UPDATE keylatch.tasks t SET
                        version = nextval('keylatch.numbers'), time_ms = now_ms,
                        wrote_version = coalesce(t.wrote_version, t.version),
                        wrote_ms = coalesce(t.wrote_ms, t.time_ms), state = 1, ready_ms = now_ms + u.lease,
                        due = 0, claim_id = u.id, claim = u.claim
                        FROM unnest(found_keys, t_lease[n:last], t_id[n:last], t_claim[n:last])
                            WITH ORDINALITY u (key, lease, id, claim, place)
                        WHERE t.pool = t_pool[n] AND t.key = u.key
                        RETURNING u.place::integer, t.key, t.bytes, t.claim, u.lease,
                            keylatch.task_numbers(t) AS numbers)
                SELECT r_n || array_agg(changes + n - 1 + k.place), r_key || array_agg(k.key),
                    r_numbers || array_agg(k.numbers), r_bytes || array_agg(k.bytes),
                    r_claim || array_agg(k.claim), told_pool || array_agg(t_pool[n]),
                    told_key || array_agg(k.key), told_due || array_agg(k.lease),
                    got || array_agg(true), next_ms || array_agg(NULL::bigint)
                INTO r_n, r_key, r_numbers, r_bytes, r_claim, told_pool, told_key, told_due, got, next_ms
                FROM taken k;
                n := n + cardinality(found_keys);
            END IF;
            -- Whoever is left gets its own look, and notes that it waits.
            CONTINUE WHEN n > last;
        END IF;
        noted := NOT t_waits[n] OR EXISTS (SELECT FROM keylatch.task_waits w
            WHERE w.pool = t_pool[n] AND w.until_ms > keylatch.now_ms() + noted_ms * 2 / 3);
        LOOP
            now_ms := floor(date_part('epoch', clock_timestamp()) * 1000)::bigint;
            task := keylatch.task_take(
                t_pool[n], t_key[n], t_id[n], t_claim[n], t_lease[n], at_once, now_ms);
            EXIT WHEN task.pool IS NOT NULL OR noted;
            -- Whoever writes from here on tells; what was written until here is looked at again.
            COMMIT;
            SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
            done := keylatch.set_up() || set_config('synchronous_commit', 'off', true);
            INSERT INTO keylatch.task_waits VALUES (t_pool[n], now_ms + noted_ms)
                ON CONFLICT (pool) DO UPDATE SET until_ms = excluded.until_ms;
            COMMIT;
            SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
            done := keylatch.set_up();
            done := keylatch.task_writers_end();
            IF current_setting('synchronous_commit') = 'off' THEN
                done := set_config('synchronous_commit', 'on', true);
            END IF;
            noted := true;
        END LOOP;
        got := array_append(got, task.pool IS NOT NULL);
        waits := waits OR (t_waits[n] AND task.pool IS NULL);
        IF task.pool IS NOT NULL THEN
            next_ms := array_append(next_ms, NULL::bigint);
            told_pool := array_append(told_pool, task.pool); told_key := array_append(told_key, task.key);
            told_due := array_append(told_due, task.ready_ms - now_ms);
        ELSIF t_key[n] IS NOT NULL THEN
            SELECT * INTO task FROM keylatch.tasks t WHERE t.pool = t_pool[n] AND t.key = t_key[n];
            next_ms := array_append(next_ms,
                CASE WHEN task.ready_ms IS NOT NULL THEN greatest(0, task.ready_ms - now_ms) END);
        ELSE
            next_ms := array_append(next_ms, (SELECT greatest(0, t.ready_ms - now_ms) FROM keylatch.tasks t
                WHERE t.pool = t_pool[n] AND t.due = 0 ORDER BY t.ready_ms LIMIT 1));
        END IF;
        IF task.pool IS NOT NULL THEN
            r_n := array_append(r_n, changes + n); r_key := array_append(r_key, task.key);
            r_numbers := array_append(r_numbers, keylatch.task_numbers(task));
            r_bytes := array_append(r_bytes, task.bytes); r_claim := array_append(r_claim, task.claim);
        END IF;
        n := n + 1;
    END LOOP;

    IF cardinality(told_pool) > 0 THEN
        COMMIT;
        IF NOT EXISTS (SELECT FROM keylatch.task_waits w WHERE w.until_ms > now_ms) THEN RETURN; END IF;
        waits := waits OR EXISTS (
            SELECT FROM keylatch.task_waits w WHERE w.pool = ANY (told_pool) AND w.until_ms > now_ms);
        -- Not to fail now by a limit that somebody has set: it has happened.
        done := set_config('lock_timeout', '0', true);
        done := set_config('synchronous_commit', 'off', true);
        PERFORM pg_notify('keylatch_tasks',
                encode(told.pool, 'hex') || ' ' || encode(told.key, 'hex') || ' ' || coalesce(told.due::text, ''))
            FROM unnest(told_pool, told_key, told_due) told (pool, key, due)
            JOIN keylatch.task_waits w ON w.pool = told.pool AND w.until_ms > now_ms;
    END IF;
END $$
