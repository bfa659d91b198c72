// redis, the official client for Node, with RESP3.
'use strict';

const { equal, deepEqual, ok, rejects } = require('node:assert/strict');
const { createClient } = require('redis');
const { respPort, durable, restart, until, run } = require('./check.js');

const connect = async (options) => {
  const client = createClient({ socket: { host: '127.0.0.1', port: respPort }, ...options });
  // Being cut off by a restart is part of this.
  client.on('error', () => {});
  return client.connect();
};
const say = (client, ...words) => client.sendCommand(words.map(String));

async function locks(ann, bob) {
  const got = await say(ann, 'LOCK', 'user:42', 'OWNER', 'ann', 'LEASE', 60_000);
  equal(got.status, 'granted', 'a map is a map');
  ok(got.token > 0 && got.lease_ms === 60_000);
  const busy = await say(bob, 'LOCK', 'user:42', 'OWNER', 'bob');
  deepEqual([busy.status, busy.owner, busy.mode, busy.state], ['busy', 'ann', 'X', 'held']);
  equal((await say(bob, 'LOCK', 'user:42', 'WAIT', 20)).status, 'timeout');
  const waiting = say(bob, 'LOCK', 'user:42', 'OWNER', 'bob', 'WAIT', 50_000, 'ID', 'waits');
  await until(async () => (await say(ann, 'LOCKS', 'WAITERS')).length === 2);
  equal(await say(ann, 'UNLOCK', got.id), 1);
  equal((await waiting).status, 'granted');
  const [entry] = await say(ann, 'LOCKS', 'NAME', 'user:42');
  deepEqual([entry.id, entry.owner, entry.argument, entry.lease_ms > 0], ['waits', 'bob', [], true]);
  equal(await say(bob, 'UNLOCK', 'waits'), 1);
  deepEqual(await say(ann, 'LOCKS'), []);

  // A lock that waits can be told to stop.
  await say(ann, 'LOCK', 'c', 'ID', 'c1');
  const stopped = say(bob, 'LOCK', 'c', 'ID', 'c2', 'WAIT', 50_000);
  await until(async () => (await say(ann, 'CANCEL', 'c2')) === 1);
  equal((await stopped).status, 'cancelled');
  await say(ann, 'UNLOCK', 'c1');
}

async function subset(client) {
  equal(await client.set('k', 'v', { NX: true, PX: 60_000 }), 'OK');
  equal(await client.set('k', 'w', { NX: true, PX: 60_000 }), null);
  equal(await client.get('k'), 'v');
  ok((await client.pTTL('k')) > 50_000);
  equal(await client.pExpire('k', 5_000), 1);
  ok((await client.pTTL('k')) <= 5_000);
  equal(await client.exists(['k', 'none']), 1);
  equal(await client.del('k'), 1);
  equal(await client.pTTL('k'), -2);
  equal(await client.get('k'), null);
  await rejects(client.set('k', 'v'), /SYNTAX SET takes a lock here, so it needs NX/);
  await rejects(say(client, 'LOCK'), /SYNTAX/);
}

async function pipelined(client) {
  // What is sent in one turn of the event loop is one write.
  const answers = await Promise.all(
    Array.from({ length: 1_000 }, (_, at) => [
      client.set(`p${at}`, String(at), { NX: true, PX: 60_000 }),
      client.get(`p${at}`),
      client.del(`p${at}`),
    ]).flat(),
  );
  answers.forEach((answer, at) => equal(answer, ['OK', String(Math.floor(at / 3)), 1][at % 3]));
}

async function events(client) {
  const listener = await connect({ RESP: 3 });
  const heard = [];
  await listener.subscribe('keylatch:events', (text) => heard.push(JSON.parse(text)));
  const { token } = await say(client, 'LOCK', 'e', 'ID', 'taken', 'OWNER', 'ann');
  equal(await say(client, 'REVOKE', token, 'REASON', 'maintenance'), 1);
  await until(() => heard.some(({ event, id }) => event === 'lost' && id === 'taken'));
  const { cause, reason } = heard.find(({ id }) => id === 'taken');
  deepEqual([cause, reason], ['revoked', 'maintenance']);
  await listener.unsubscribe('keylatch:events');
  listener.destroy();
}

async function restarted(client) {
  equal(await client.set('kept', 'v', { NX: true }), 'OK');
  await restart();
  // The first ones may still meet the old connection.
  let value;
  await until(async () => {
    try {
      value = await client.get('kept');
      return true;
    } catch {
      return false;
    }
  });
  equal(value, durable ? 'v' : null);
  if (durable) equal(await client.del('kept'), 1);
}

run(async () => {
  const ann = await connect({ RESP: 3, name: 'worker-7' });
  const bob = await connect({ RESP: 3 });
  equal(await ann.ping(), 'PONG');
  equal(await say(ann, 'CLIENT', 'GETNAME'), 'worker-7');
  await locks(ann, bob);
  await subset(ann);
  await pipelined(ann);
  await events(ann);
  // RESP2 with the same client.
  const old = await connect({ RESP: 2 });
  const flat = await say(old, 'LOCK', 'old', 'ID', 'old');
  deepEqual(flat.slice(0, 4), ['status', 'granted', 'id', 'old']);
  equal(await say(old, 'UNLOCK', 'old'), 1);
  await old.close();
  await restarted(ann);
  await ann.close();
  bob.destroy();
});
