//! What others do on the same PostgreSQL. Of River and pgmq these are their tables, their indexes and their
//! statements; pgmq's are prepared here, where its functions put them together for each call. With one task at
//! a time, as a worker that asks for one.

pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) make: &'static str,
    /// With a size and a body.
    pub(super) fill: &'static str,
    /// Returns id and attempt.
    pub(super) claim: &'static str,
    /// Gets both.
    pub(super) done: &'static str,
}

pub(super) const PEERS: [Peer; 3] = [RIVER, PGMQ, BARE];

/// A worker that died is found by a maintenance job of River's, which is not running here.
const RIVER: Peer = Peer {
    name: "River",
    make: "CREATE TYPE river_job_state AS ENUM ('available', 'cancelled', 'completed', 'discarded', 'pending',
            'retryable', 'running', 'scheduled');
        CREATE TABLE river_job (
            id bigserial PRIMARY KEY, state river_job_state NOT NULL DEFAULT 'available',
            attempt smallint NOT NULL DEFAULT 0, max_attempts smallint NOT NULL DEFAULT 25,
            attempted_at timestamptz, created_at timestamptz NOT NULL DEFAULT now(), finalized_at timestamptz,
            scheduled_at timestamptz NOT NULL DEFAULT now(), priority smallint NOT NULL DEFAULT 1,
            args jsonb NOT NULL, attempted_by text[], errors jsonb[], kind text NOT NULL,
            metadata jsonb NOT NULL DEFAULT '{}', queue text NOT NULL DEFAULT 'default',
            tags varchar(255)[] NOT NULL DEFAULT '{}', unique_key bytea, unique_states bit(8));
        CREATE INDEX ON river_job (kind);
        CREATE INDEX ON river_job (state, finalized_at) WHERE finalized_at IS NOT NULL;
        CREATE INDEX ON river_job (state, queue, priority, scheduled_at, id);
        CREATE INDEX ON river_job USING gin (args);
        CREATE INDEX ON river_job USING gin (metadata)",
    fill: "TRUNCATE river_job;
        INSERT INTO river_job (args, kind) SELECT '{body}', 'mail' FROM generate_series(1, {size});
        VACUUM ANALYZE river_job",
    claim: "WITH locked_jobs AS (
            SELECT * FROM river_job WHERE state = 'available' AND queue = 'default' AND scheduled_at <= now()
            ORDER BY priority, scheduled_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
        UPDATE river_job SET state = 'running', attempt = river_job.attempt + 1, attempted_at = now(),
            attempted_by = array_append(river_job.attempted_by, 'a worker')
        FROM locked_jobs WHERE river_job.id = locked_jobs.id
        RETURNING river_job.id, river_job.attempt::integer, river_job.*",
    done: "UPDATE river_job SET state = 'completed', finalized_at = now()
        WHERE id = $1 AND state = 'running' AND attempt = $2::integer",
};

/// What is done is kept in its archive.
const PGMQ: Peer = Peer {
    name: "pgmq",
    make: "CREATE TABLE pgmq_q (
            msg_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, read_ct integer NOT NULL DEFAULT 0,
            enqueued_at timestamptz NOT NULL DEFAULT now(), vt timestamptz NOT NULL, message jsonb,
            headers jsonb);
        CREATE TABLE pgmq_a (
            msg_id bigint PRIMARY KEY, read_ct integer NOT NULL DEFAULT 0,
            enqueued_at timestamptz NOT NULL DEFAULT now(), archived_at timestamptz NOT NULL DEFAULT now(),
            vt timestamptz NOT NULL, message jsonb, headers jsonb);
        CREATE INDEX ON pgmq_q (vt);
        CREATE INDEX ON pgmq_a (archived_at)",
    fill: "TRUNCATE pgmq_q, pgmq_a;
        INSERT INTO pgmq_q (vt, message) SELECT now(), '{body}' FROM generate_series(1, {size});
        VACUUM ANALYZE pgmq_q, pgmq_a",
    claim: "WITH cte AS (
            SELECT msg_id FROM pgmq_q WHERE vt <= clock_timestamp()
            ORDER BY msg_id LIMIT 1 FOR UPDATE SKIP LOCKED)
        UPDATE pgmq_q m SET vt = clock_timestamp() + interval '60 s', read_ct = read_ct + 1
        FROM cte WHERE m.msg_id = cte.msg_id
        RETURNING m.msg_id, m.read_ct, m.enqueued_at, m.vt, m.message, m.headers",
    done: "WITH archived AS (
            DELETE FROM pgmq_q WHERE msg_id = $1 AND read_ct = $2::integer
            RETURNING msg_id, vt, read_ct, enqueued_at, message, headers)
        INSERT INTO pgmq_a (msg_id, vt, read_ct, enqueued_at, message, headers)
        SELECT msg_id, vt, read_ct, enqueued_at, message, headers FROM archived",
};

/// The least that still has pools, priorities and leases that end by themselves, and does not take a task for done
/// that somebody else has claimed since.
const BARE: Peer = Peer {
    name: "a bare table",
    make: "CREATE TABLE bench_jobs (
            id bigserial PRIMARY KEY, pool text NOT NULL DEFAULT 'bench', is_done boolean NOT NULL DEFAULT false,
            priority integer NOT NULL DEFAULT 0, ready timestamptz NOT NULL DEFAULT now(),
            attempts integer NOT NULL DEFAULT 0, body bytea NOT NULL);
        CREATE INDEX ON bench_jobs (pool, priority DESC, ready, id) WHERE NOT is_done",
    fill: "TRUNCATE bench_jobs;
        INSERT INTO bench_jobs (body) SELECT convert_to('{body}', 'UTF8') FROM generate_series(1, {size});
        VACUUM ANALYZE bench_jobs",
    claim: "UPDATE bench_jobs SET attempts = attempts + 1, ready = now() + interval '60 s'
        WHERE id = (SELECT id FROM bench_jobs WHERE pool = 'bench' AND NOT is_done AND ready <= now()
            ORDER BY priority DESC, ready, id LIMIT 1 FOR UPDATE SKIP LOCKED)
        RETURNING id, attempts, body",
    done: "UPDATE bench_jobs SET is_done = true WHERE id = $1 AND attempts = $2::integer AND NOT is_done",
};
