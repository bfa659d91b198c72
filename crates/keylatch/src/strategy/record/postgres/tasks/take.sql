-- The first task that is due: $1 pool, $2 id, $3 claim, $4 lease. Not if something has become due that is not in the
-- line yet. If there is something of this id it fails: the index of ids is unique.
UPDATE keylatch.tasks t SET
    version = nextval('keylatch.numbers'), time_ms = keylatch.task_now(),
    wrote_version = coalesce(t.wrote_version, t.version), wrote_ms = coalesce(t.wrote_ms, t.time_ms),
    state = 1, ready_ms = CASE WHEN $4 > 0 THEN keylatch.task_now() + $4 END,
    due = CASE WHEN $4 > 0 THEN 0 END, claim_id = $2, claim = $3
WHERE t.ctid = (
    SELECT l.ctid FROM keylatch.tasks l
    WHERE l.pool = $1 AND l.due = 1
        AND NOT EXISTS (SELECT FROM keylatch.task_waits w
            WHERE w.pool = $1 AND w.until_ms > keylatch.task_now())
        AND NOT EXISTS (SELECT FROM keylatch.tasks e
            WHERE e.pool = $1 AND e.due = 0 AND e.ready_ms <= keylatch.task_now())
    ORDER BY l.priority DESC, l.ready_ms, l.number LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING t.key, t.version, t.time_ms, t.wrote_version, t.wrote_ms, t.number, t.priority, t.ready_ms, t.bytes
