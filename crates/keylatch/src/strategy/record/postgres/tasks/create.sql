-- A task that is not there: arguments as of a put.
INSERT INTO keylatch.tasks AS t
SELECT $1, $2, d.version, keylatch.task_now(),
    NULL, NULL, d.version, $3, $4, coalesce(keylatch.task_now() + $6, $5),
    CASE WHEN $5 IS NOT NULL OR $6 IS NOT NULL THEN
        ($3 = 0 AND coalesce($6, $5 - keylatch.task_now()) <= 0)::integer END,
    NULL, $8, $7
FROM (SELECT nextval('keylatch.numbers') AS version OFFSET 0) d
WHERE NOT EXISTS (SELECT FROM keylatch.task_waits w
        WHERE w.pool = $1 AND w.until_ms > keylatch.task_now())
ON CONFLICT DO NOTHING
RETURNING t.version, t.time_ms
