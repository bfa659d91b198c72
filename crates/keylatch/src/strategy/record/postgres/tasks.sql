-- Tasks, in the same schema. Made when they are first asked for. Version 1.
--
-- Whoever changes a task locks its row, in the order of pools and keys; whoever takes one skips rows that others
-- have locked, and so waits for nobody. In one transaction changes come before takes: nobody waits in a circle.

CREATE TABLE keylatch.task_schema (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL
);

CREATE TABLE keylatch.tasks (
    pool bytea NOT NULL,
    key bytea NOT NULL,
    -- Of its last write, and of the last that was not a take.
    version bigint NOT NULL, time_ms bigint NOT NULL,
    wrote_version bigint NOT NULL, wrote_ms bigint NOT NULL,
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
CREATE INDEX tasks_claim ON keylatch.tasks (claim_id) WHERE claim_id IS NOT NULL;

-- Where somebody waits, until when that is known. After a crash they say it again.
CREATE UNLOGGED TABLE keylatch.task_waits (
    pool bytea PRIMARY KEY,
    until_ms bigint NOT NULL
);

-- One take: what was taken, or nothing.
CREATE FUNCTION keylatch.task_take(
    in_pool bytea, in_key bytea, in_id bytea, in_claim bytea, lease_ms bigint, at_once integer, now_ms bigint
) RETURNS keylatch.tasks LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    task keylatch.tasks;
    later bytea;
BEGIN
    -- A repeat takes nothing more.
    SELECT * INTO task FROM keylatch.tasks t WHERE t.claim_id = in_id AND t.pool = in_pool LIMIT 1;
    IF FOUND THEN RETURN task; END IF;
    IF in_key IS NOT NULL THEN
        SELECT * INTO task FROM keylatch.tasks t
            WHERE t.pool = in_pool AND t.key = in_key AND (t.due = 1 OR t.due = 0 AND t.ready_ms <= now_ms)
            FOR UPDATE SKIP LOCKED;
    ELSE
        -- One by one, by their keys: a join might read the whole pool.
        FOR later IN
            SELECT l.key FROM keylatch.tasks l
            WHERE l.pool = in_pool AND l.due = 0 AND l.ready_ms <= now_ms
            ORDER BY l.ready_ms LIMIT at_once FOR UPDATE SKIP LOCKED
        LOOP
            UPDATE keylatch.tasks t SET due = 1 WHERE t.pool = in_pool AND t.key = later;
        END LOOP;
        SELECT * INTO task FROM keylatch.tasks t WHERE t.pool = in_pool AND t.due = 1
            ORDER BY t.priority DESC, t.ready_ms, t.number LIMIT 1 FOR UPDATE SKIP LOCKED;
    END IF;
    IF NOT FOUND THEN RETURN NULL; END IF;
    UPDATE keylatch.tasks t SET
        version = nextval('keylatch.numbers'), time_ms = now_ms, state = 1,
        ready_ms = CASE WHEN lease_ms > 0 THEN now_ms + lease_ms END,
        due = CASE WHEN lease_ms > 0 THEN 0 END, claim_id = in_id, claim = in_claim
        WHERE t.pool = task.pool AND t.key = task.key
        RETURNING * INTO task;
    RETURN task;
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
    t_pool bytea[], t_key bytea[], t_id bytea[], t_claim bytea[], t_lease bigint[], t_waits boolean[],
    at_once integer, noted_ms bigint,
    -- The versions of changes, null where it was otherwise; whether takes got something, and else when there
    -- will be.
    INOUT now_ms bigint, INOUT version bigint[], INOUT got boolean[], INOUT next_ms bigint[],
    -- Tasks: of which change, or behind those of which take.
    -- Eight numbers for each: version, time_ms, wrote_version, wrote_ms, number, state, priority, ready_ms.
    INOUT r_n integer[], INOUT r_key bytea[], INOUT r_numbers bigint[], INOUT r_bytes bytea[],
    INOUT r_claim bytea[]
) LANGUAGE plpgsql AS $$
DECLARE
    done text;
    task keylatch.tasks;
    there boolean;
    ready bigint;
    drawn bigint;
    noted boolean;
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
    version := '{}'; got := '{}'; next_ms := '{}'; r_n := '{}'; r_key := '{}'; r_numbers := '{}';
    r_bytes := '{}'; r_claim := '{}';

    FOR n IN 1 .. changes LOOP
        SELECT * INTO task FROM keylatch.tasks t WHERE t.pool = c_pool[n] AND t.key = c_key[n] FOR UPDATE;
        there := FOUND;
        now_ms := floor(date_part('epoch', clock_timestamp()) * 1000)::bigint;
        drawn := NULL;
        ready := coalesce(now_ms + c_after[n], c_at[n]);
        IF NOT there AND c_expect[n] IS NULL AND c_write[n] = 1 THEN
            drawn := nextval('keylatch.numbers');
            INSERT INTO keylatch.tasks VALUES (
                c_pool[n], c_key[n], drawn, now_ms, drawn, now_ms, drawn, c_state[n], c_priority[n], ready,
                CASE WHEN ready IS NOT NULL THEN (c_state[n] = 0 AND ready <= now_ms)::integer END,
                NULL, c_claim[n], c_bytes[n]) ON CONFLICT DO NOTHING;
            IF NOT FOUND THEN
                -- Somebody else has made it meanwhile.
                drawn := NULL;
                SELECT * INTO task FROM keylatch.tasks t WHERE t.pool = c_pool[n] AND t.key = c_key[n];
                there := FOUND;
            END IF;
        ELSIF there AND task.version = c_expect[n] THEN
            drawn := nextval('keylatch.numbers');
            IF c_write[n] = 2 THEN
                DELETE FROM keylatch.tasks t WHERE t.pool = c_pool[n] AND t.key = c_key[n];
            ELSE
                UPDATE keylatch.tasks t SET
                    version = drawn, time_ms = now_ms, wrote_version = drawn, wrote_ms = now_ms,
                    state = c_state[n], priority = c_priority[n], ready_ms = ready,
                    due = CASE WHEN ready IS NOT NULL THEN (c_state[n] = 0 AND ready <= now_ms)::integer END,
                    claim = c_claim[n], bytes = c_bytes[n]
                    WHERE t.pool = c_pool[n] AND t.key = c_key[n];
            END IF;
        END IF;
        version := array_append(version, drawn);
        IF drawn IS NULL AND there THEN
            r_n := array_append(r_n, n); r_key := array_append(r_key, task.key);
            r_numbers := r_numbers || ARRAY[task.version, task.time_ms, task.wrote_version, task.wrote_ms,
                task.number, task.state, task.priority, coalesce(task.ready_ms, -1)];
            r_bytes := array_append(r_bytes, task.bytes); r_claim := array_append(r_claim, task.claim);
        ELSIF drawn IS NOT NULL AND c_write[n] = 1 THEN
            told_pool := array_append(told_pool, c_pool[n]); told_key := array_append(told_key, c_key[n]);
            told_due := array_append(told_due,
                CASE WHEN ready IS NOT NULL THEN greatest(0, ready - now_ms) END);
        END IF;
    END LOOP;

    FOR n IN 1 .. takes LOOP
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
            IF current_setting('synchronous_commit') = 'off' THEN
                done := set_config('synchronous_commit', 'on', true);
            END IF;
            noted := true;
        END LOOP;
        got := array_append(got, task.pool IS NOT NULL);
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
            r_numbers := r_numbers || ARRAY[task.version, task.time_ms, task.wrote_version, task.wrote_ms,
                task.number, task.state, task.priority, coalesce(task.ready_ms, -1)];
            r_bytes := array_append(r_bytes, task.bytes); r_claim := array_append(r_claim, task.claim);
        END IF;
    END LOOP;

    IF cardinality(told_pool) > 0 THEN
        COMMIT;
        -- Not to fail now by a limit that somebody has set: it has happened.
        done := set_config('lock_timeout', '0', true);
        done := set_config('synchronous_commit', 'off', true);
        PERFORM pg_notify('keylatch_tasks',
                encode(told.pool, 'hex') || ' ' || encode(told.key, 'hex') || ' ' || coalesce(told.due::text, ''))
            FROM unnest(told_pool, told_key, told_due) told (pool, key, due)
            JOIN keylatch.task_waits w ON w.pool = told.pool AND w.until_ms > now_ms;
    END IF;
END $$
