-- No task, where there was one as expected: $1 pool, $2 key, $3 its version. Nobody is told of it, so nobody looks who waits.
DELETE FROM keylatch.tasks t
WHERE t.pool = $1 AND t.key = $2 AND t.version = $3
RETURNING nextval('keylatch.numbers'), keylatch.task_now()
