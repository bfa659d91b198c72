-- A task that is as expected: $1 pool, $2 key, $3 state, $4 priority, $5 when it is due or $6 so long after now, $7 bytes,
-- $8 claim, $9 the version that it has.
UPDATE keylatch.tasks t SET
    version = nextval('keylatch.numbers'), time_ms = keylatch.task_now(),
    wrote_version = NULL, wrote_ms = NULL, state = $3, priority = $4,
    ready_ms = coalesce(keylatch.task_now() + $6, $5),
    due = CASE WHEN $5 IS NOT NULL OR $6 IS NOT NULL THEN
        ($3 = 0 AND coalesce($6, $5 - keylatch.task_now()) <= 0)::integer END,
    claim = $8, bytes = $7
WHERE t.pool = $1 AND t.key = $2 AND t.version = $9
    AND NOT EXISTS (SELECT FROM keylatch.task_waits w
        WHERE w.pool = $1 AND w.until_ms > keylatch.task_now())
RETURNING t.version, t.time_ms
