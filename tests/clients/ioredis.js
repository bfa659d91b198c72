// ioredis: RESP2, reconnecting by itself, pipelining by default.
'use strict';

const { equal, deepEqual, ok, rejects } = require('node:assert/strict');
const Redis = require('ioredis');
const { respPort, durable, restart, until, map, run } = require('./check.js');

const waiters = async (redis) => {
  const all = (await redis.call('LOCKS', 'WAITERS')).map(map);
  return all.filter((entry) => entry.state === 'waiting').length;
};

async function locks(ann, bob) {
  const got = map(await ann.call('LOCK', 'user:42', 'OWNER', 'ann', 'LEASE', 60_000, 'META', 'm'));
  equal(got.status, 'granted');
  ok(got.token > 0 && got.lease_ms === 60_000 && got.waited_ms === 0, 'token, lease, wait');
  const busy = map(await bob.call('LOCK', 'user:42', 'OWNER', 'bob'));
  deepEqual([busy.status, busy.owner, busy.mode, busy.state], ['busy', 'ann', 'X', 'held']);
  const late = map(await bob.call('LOCK', 'user:42', 'OWNER', 'bob', 'WAIT', 20));
  deepEqual([late.status, late.owner], ['timeout', 'ann']);
  equal(map(await bob.call('RENEW', got.id, 'LEASE', 90_000)).status, 'renewed');

  const waiting = bob.call('LOCK', 'user:42', 'OWNER', 'bob', 'WAIT', 50_000, 'ID', 'waits');
  await until(async () => (await waiters(ann)) === 1);
  equal(await ann.call('UNLOCK', got.id), 1);
  const next = map(await waiting);
  deepEqual([next.status, next.id], ['granted', 'waits']);
  ok(next.token > got.token, 'tokens rise');
  equal(await bob.call('UNLOCK', 'waits'), 1);
  equal(await bob.call('UNLOCK', 'waits'), 1, 'the same answer again');
  equal(map(await bob.call('LOCK', 'user:42', 'ID', 'waits')).status, 'ended');

  // Modes and promotion.
  for (const id of ['s1', 's2']) {
    equal(map(await ann.call('LOCK', 'doc', 'MODE', 'S', 'ID', id)).status, 'granted');
  }
  equal(map(await ann.call('PROMOTE', 's1')).status, 'busy');
  await ann.call('UNLOCK', 's2');
  equal(map(await ann.call('PROMOTE', 's1')).status, 'promoted');
  await ann.call('UNLOCK', 's1');
  for (const id of ['o1', 'o2']) {
    equal(map(await ann.call('LOCK', 'doc', 'MODE', 'O', 'ID', id)).status, 'granted');
  }
  equal(map(await ann.call('PROMOTE', 'o2')).status, 'promoted');
  deepEqual(map(await ann.call('PROMOTE', 'o1')), { status: 'lost', cause: 'superseded' });
  equal(await ann.call('UNLOCK', 'o2'), 1);

  // Several at once: all or nothing.
  equal(map(await ann.call('LOCK', 'b', 'ID', 'b')).status, 'granted');
  const both = map(await bob.call('LOCK', 'a', 'AND', 'b'));
  equal(both.status, 'busy');
  equal(await bob.exists('a'), 0, 'no partial hold');
  await ann.call('UNLOCK', 'b');
}

async function subset(redis) {
  equal(await redis.set('k', 'v', 'PX', 60_000, 'NX'), 'OK');
  equal(await redis.set('k', 'w', 'PX', 60_000, 'NX'), null);
  equal(await redis.get('k'), 'v');
  ok((await redis.pttl('k')) > 50_000);
  equal(await redis.pexpire('k', 5_000), 1);
  ok((await redis.pttl('k')) <= 5_000);
  equal(await redis.exists('k', 'none'), 1);
  equal(await redis.del('k'), 1);
  equal(await redis.get('k'), null);
  equal(await redis.pttl('k'), -2);
  equal(await redis.set('k', Buffer.from([0, 255, 13, 10]), 'EX', 60, 'NX'), 'OK');
  deepEqual(await redis.getBuffer('k'), Buffer.from([0, 255, 13, 10]), 'bytes stay bytes');
  equal(await redis.pexpire('k', 1), 1);
  await until(async () => (await redis.exists('k')) === 0);
  await rejects(redis.set('k', 'v'), /^ReplyError: SYNTAX SET takes a lock here, so it needs NX/);
  await rejects(redis.incr('k'), /^ReplyError: UNKNOWN /);
  await rejects(redis.call('LOCK', 'k', 'WAIT', 'long'), /^ReplyError: BADARG WAIT must be a whole number/);
}

async function pipelined(redis) {
  const pipeline = redis.pipeline();
  for (let at = 0; at < 1_000; at += 1) {
    pipeline.set(`p${at}`, String(at), 'PX', 60_000, 'NX').get(`p${at}`).del(`p${at}`);
  }
  const answers = await pipeline.exec();
  equal(answers.length, 3_000);
  answers.forEach(([error, answer], at) => {
    equal(error, null);
    equal(answer, ['OK', String(Math.floor(at / 3)), 1][at % 3]);
  });
}

async function events(redis) {
  const listener = new Redis(respPort, '127.0.0.1');
  const heard = [];
  listener.on('message', (channel, text) => {
    equal(channel, 'keylatch:events');
    heard.push(JSON.parse(text));
  });
  equal(await listener.subscribe('keylatch:events'), 1);
  await redis.call('LOCK', 'e', 'LEASE', 20, 'ID', 'short', 'OWNER', 'ann');
  await until(() => heard.some(({ event, id }) => event === 'lost' && id === 'short'));
  const { cause, request } = heard.find(({ id }) => id === 'short');
  equal(cause, 'expired');
  deepEqual([request.owner, request.resources], ['ann', [{ resource: 'e', mode: 'X' }]]);
  equal(await listener.unsubscribe('keylatch:events'), 0);
  listener.disconnect();
}

async function restarted(redis) {
  equal(await redis.set('kept', 'v', 'NX'), 'OK');
  await restart();
  // The client connects again by itself.
  const value = await redis.get('kept');
  equal(value, durable ? 'v' : null);
  if (durable) equal(await redis.del('kept'), 1);
}

run(async () => {
  const options = { host: '127.0.0.1', port: respPort, connectionName: 'worker-7' };
  const ann = new Redis(options);
  const bob = new Redis(options);
  equal(await ann.ping(), 'PONG');
  equal(await ann.client('GETNAME'), 'worker-7');
  await locks(ann, bob);
  await subset(ann);
  await pipelined(ann);
  await events(ann);
  await restarted(ann);
  equal(await bob.quit(), 'OK');
});
