// enqueue-client, and ioredis as the view from the other port.
'use strict';

const { equal, deepEqual, ok } = require('node:assert/strict');
const client = require('enqueue-client');
const Redis = require('ioredis');
const { respPort, enqueuePort, durable, restart, until, map, run } = require('./check.js');

client.setEnqueueServerConnection('127.0.0.1', enqueuePort);
const lock = (wanted) =>
  new Promise((done) => client.lock(wanted, (id, rc, message) => done({ id, rc, message })));
const unlock = (id) => new Promise((done) => client.unlock(id, (rc, message) => done({ rc, message })));
const promote = (id) => new Promise((done) => client.promote(id, (rc, message) => done({ rc, message })));
const list = (name, owner) =>
  new Promise((done, fail) =>
    client.getLocksBy(name, owner, (rc, locks) => (rc === '0' ? done(locks) : fail(locks))));
const outcome = async (wanted) => {
  const { rc, message } = await lock(wanted);
  return message === undefined ? rc : `${rc} ${message}`;
};
const waits = (name, count) => until(async () => (await list(name, null)).length === count);

async function modes() {
  // Held, asked by the same owner, asked by another one.
  const table = {
    S: { S: ['0', '0'], E: ['1', '1'], X: ['1', '1'], O: ['1', '1'] },
    E: { S: ['1', '1'], E: ['0', '1'], X: ['1', '1'], O: ['1', '1'] },
    X: { S: ['1', '1'], E: ['1', '1'], X: ['1', '1'], O: ['1', '1'] },
    O: { S: ['1', '1'], E: ['1', '1'], X: ['1', '1'], O: ['0', '0'] },
  };
  for (const [held, row] of Object.entries(table)) {
    for (const [asked, wanted] of Object.entries(row)) {
      for (const [at, owner] of ['ann', 'bob'].entries()) {
        const one = { name: 'modes', argument: ['A'], mode: held, owner: 'ann' };
        const first = await lock(one);
        equal(first.rc, '0', `${held} on a free key`);
        const second = await lock({ ...one, mode: asked, owner });
        equal(second.rc, wanted[at], `${asked} of ${owner} beside ${held} of ann`);
        if (second.rc === '0') equal((await unlock(second.id)).rc, '0');
        else equal(second.message, 'ann', 'the blocker is named');
        equal((await unlock(first.id)).rc, '0');
      }
    }
  }
  equal(await outcome({ name: 'modes', argument: ['A'], mode: 'Z', owner: 'ann' }),
    '4 Unknown lock mode: there are S, E, X and O!');
  equal(await outcome({ name: 'modes', argument: 'A', mode: 'E', owner: 'ann' }),
    '4 Lock argument must be array!');
  deepEqual(await unlock('nobody'), { rc: '4', message: 'The lock does not exist!' });
}

async function keys() {
  const product = (argument, owner) => ({ name: 'product', argument, mode: 'E', owner });
  const all = await lock(product(['Computer', '@'], 'ann'));
  equal(all.rc, '0');
  for (const [argument, wanted] of [
    [['Computer', 'Laptop'], '1 ann'],
    [['@', 'Laptop'], '1 ann'],
    [['@', '@'], '1 ann'],
    [['Phone', 'Laptop'], '0'],
    [['Computer'], '0'],
    [['Computer', 'Laptop', 'Red'], '0'],
    [[], '0'],
    [[1, 'x'], '0'],
    [['1', 'x'], '0'],
    [[true, 'x'], '0'],
    [[1, 'x'], '1 bob'],
  ]) {
    const owner = wanted === '1 bob' ? 'eve' : 'bob';
    equal(await outcome(product(argument, owner)), wanted, JSON.stringify(argument));
  }
  const locks = await list('product', null);
  deepEqual(locks.map((entry) => entry.argument),
    ['Computer,@', 'Phone,Laptop', 'Computer', 'Computer,Laptop,Red', '', '1,x', '1,x', 'true,x']);
  const { uuid, timestamp, ...rest } = locks[0];
  equal(uuid, all.id);
  ok(/^\d{1,2}\/\d{1,2}\/\d{4}, \d{1,2}:\d\d:\d\d [AP]M$/.test(timestamp), timestamp);
  deepEqual(rest, {
    name: 'product', argument: 'Computer,@', mode: 'E', owner: 'ann', waitTime: 0, timeout: 900000,
  });
  equal((await list('product', 'bob')).length, 7);
  equal((await list(null, 'ann')).length, 1);
  equal((await list('product', 'eve')).length, 0);
  for (const entry of await list(null, null)) equal((await unlock(entry.uuid)).rc, '0');
  deepEqual(await list(null, null), []);
}

async function waiting() {
  const key = { name: 'queue', argument: ['A'], mode: 'X' };
  const first = await lock({ ...key, owner: 'ann' });
  const order = [];
  const waiter = async (owner) => {
    const got = await lock({ ...key, owner, waitTime: 50_000 });
    equal(got.rc, '0');
    order.push(owner);
    equal((await unlock(got.id)).rc, '0');
  };
  const bob = waiter('bob');
  await waits('queue', 2);
  const eve = waiter('eve');
  await waits('queue', 3);
  equal((await list('queue', 'bob'))[0].waitTime, 50_000);
  equal(await outcome({ ...key, owner: 'tim', waitTime: 30 }), '1 ann', 'its wait is over');
  equal(await outcome({ ...key, owner: 'tim' }), '1 ann', 'it does not wait');
  equal((await unlock(first.id)).rc, '0');
  await Promise.all([bob, eve]);
  deepEqual(order, ['bob', 'eve'], 'in the order of arrival');

  // Readers enter together, and not before the writer that was there first.
  const reader = await lock({ ...key, mode: 'S', owner: 'r1' });
  const writer = lock({ ...key, mode: 'E', owner: 'w', waitTime: 50_000 });
  await waits('queue', 2);
  equal(await outcome({ ...key, mode: 'S', owner: 'r2' }), '1 w');
  await unlock(reader.id);
  equal((await writer).rc, '0');
  await unlock((await writer).id);

  // A timeout ends a lock by itself, and its waiter gets it.
  const short = await lock({ ...key, owner: 'ann', timeout: 40 });
  equal(short.rc, '0');
  const next = await lock({ ...key, owner: 'bob', waitTime: 50_000 });
  equal(next.rc, '0');
  deepEqual(await unlock(short.id), { rc: '4', message: 'The lock does not exist!' });
  await unlock(next.id);
}

async function promotion() {
  const key = { name: 'order', argument: ['7'], mode: 'O' };
  const one = await lock({ ...key, owner: 'ann' });
  const two = await lock({ ...key, owner: 'bob' });
  deepEqual(await promote(one.id), { rc: '0', message: undefined });
  equal((await promote(two.id)).rc, '2', 'it was superseded');
  const locks = await list('order', null);
  deepEqual(locks.map((entry) => [entry.uuid, entry.mode]), [[one.id, 'E']]);
  equal((await promote('nobody')).rc, '2');
  await unlock(one.id);

  const shared = await lock({ ...key, mode: 'S', owner: 'ann' });
  const other = await lock({ ...key, mode: 'S', owner: 'bob' });
  deepEqual(await promote(shared.id), { rc: '2', message: 'bob' }, 'the blocker is named');
  await unlock(other.id);
  equal((await promote(shared.id)).rc, '0', 'alone now');
  await unlock(shared.id);
}

async function bothPorts(redis) {
  const key = { name: 'both', argument: ['A', '@'], mode: 'E', owner: 'ann' };
  const ours = await lock(key);
  const busy = map(await redis.call('LOCK', 'both', 'ARG', 2, 'A', 'B', 'OWNER', 'bob'));
  deepEqual([busy.status, busy.owner, busy.mode], ['busy', 'ann', 'E']);
  const [seen] = (await redis.call('LOCKS', 'NAME', 'both')).map(map);
  deepEqual([seen.owner, seen.argument], ['ann', ['A', '@']]);
  // Released through the other port, where its id is known.
  equal(await redis.call('UNLOCK', seen.id), 1);
  deepEqual(await unlock(ours.id), { rc: '4', message: 'The lock does not exist!' });

  const theirs = map(await redis.call('LOCK', 'both', 'ARG', 2, 'A', 'B', 'OWNER', 'bob'));
  equal(theirs.status, 'granted');
  equal(await outcome(key), '1 bob');
  const [listed] = await list('both', null);
  deepEqual([listed.uuid, listed.argument, listed.owner], [null, 'A,B', 'bob']);
  equal((await unlock(theirs.id)).rc, '4', 'an id is no uuid');
  const waiter = lock({ ...key, waitTime: 50_000 });
  await waits('both', 2);
  equal(await redis.call('UNLOCK', theirs.id), 1);
  equal((await waiter).rc, '0', 'handed over to the other port');

  // And back.
  const blocked = redis.call('LOCK', 'both', 'ARG', 2, 'A', 'C', 'WAIT', 50_000, 'OWNER', 'bob');
  await waits('both', 2);
  await unlock((await waiter).id);
  const granted = map(await blocked);
  equal(granted.status, 'granted');
  equal(await redis.call('UNLOCK', granted.id), 1);

  // A plain key of SET is a name without fields.
  equal(await redis.set('plain', 'v', 'PX', 60_000, 'NX'), 'OK');
  const refused = await lock({ name: 'plain', argument: [], mode: 'S', owner: 'ann' });
  equal(refused.rc, '1');
  equal(await redis.del('plain'), 1);
}

async function long() {
  // A list of more than one segment.
  const names = Array.from({ length: 2_000 }, (_, at) => `long-${at}-${'x'.repeat(100)}`);
  const got = [];
  for (let at = 0; at < names.length; at += 100) {
    const some = names.slice(at, at + 100);
    got.push(...(await Promise.all(
      some.map((name) => lock({ name, argument: ['ä\u2028"'], mode: 'X', owner: 'many' })))));
  }
  ok(got.every(({ rc }) => rc === '0'));
  const locks = await list(null, 'many');
  deepEqual(locks.map((entry) => entry.name).sort(), names.sort());
  for (let at = 0; at < got.length; at += 100) {
    await Promise.all(got.slice(at, at + 100).map(({ id }) => unlock(id)));
  }
  deepEqual(await list(null, 'many'), []);
}

async function restarted() {
  const key = { name: 'kept', argument: [], mode: 'X', owner: 'ann' };
  const kept = await lock(key);
  equal(kept.rc, '0');
  await restart();
  if (durable) {
    equal(await outcome({ ...key, owner: 'bob' }), '1 ann', 'it survived');
    equal((await unlock(kept.id)).rc, '0', 'its uuid too');
  }
  const again = await lock(key);
  equal(again.rc, '0');
  await unlock(again.id);
}

run(async () => {
  const redis = new Redis(respPort, '127.0.0.1');
  await modes();
  await keys();
  await waiting();
  await promotion();
  await bothPorts(redis);
  await long();
  redis.disconnect();
  await restarted();
  // Nobody there: the client's own error.
  client.setEnqueueServerConnection('127.0.0.1', 1);
  equal((await lock({ name: 'x', argument: [], mode: 'X' })).rc, '3');
});
