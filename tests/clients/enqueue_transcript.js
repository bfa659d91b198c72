// Says what enqueue-client is answered, line by line, without what differs from run to run. Takes
// the port; any server of the protocol can be asked, and must be empty.
'use strict';

const client = require('enqueue-client');
const { run, until } = require('./check.js');

client.setEnqueueServerConnection('127.0.0.1', Number(process.argv[2]));
const ids = [];
const number = (id) => (ids.includes(id) ? `#${ids.indexOf(id) + 1}` : id);
const say = (...words) => console.log(words.filter((word) => word !== undefined).join(' '));

// [name, argument, mode, owner, waitTime, timeout]
const ask = ([name, argument, mode, owner, waitTime, timeout]) =>
  new Promise((done) => {
    client.lock({ name, argument, mode, owner, waitTime, timeout }, (id, rc, message) => {
      ids.push(id);
      const asked = [number(id), 'lock', name, JSON.stringify(argument), mode, owner];
      done({ id, words: [...asked, '->', rc, message] });
    });
  });
const answered = async (asked) => {
  const { id, words } = await asked;
  say(...words);
  return id;
};
const lock = (words) => answered(ask(words));
const unlock = (id) =>
  new Promise((done) => {
    client.unlock(id, (rc, message) => done(say('unlock', number(id), '->', rc, message)));
  });
// Only the code: who is in the way is told by some servers.
const promote = (id) =>
  new Promise((done) => client.promote(id, (rc) => done(say('promote', number(id), '->', rc))));
const fetch = (name, owner) =>
  new Promise((done) => client.getLocksBy(name, owner, (_, locks) => done(locks)));
const list = async (name, owner) => {
  say('list', `name=${name}`, `owner=${owner}`);
  for (const { uuid, timestamp, ...rest } of await fetch(name, owner)) {
    // Some editions of Node have a narrow space before AM and PM.
    const time = /^\d{1,2}\/\d{1,2}\/\d{4}, \d{1,2}:\d\d:\d\d[ \u202f][AP]M$/.test(timestamp);
    // A lock that waits is asked for before its answer, and so has no number yet.
    const who = ids.includes(uuid) ? number(uuid) : 'waiting';
    say(' ', who, JSON.stringify(rest), time ? 'timestamp' : timestamp);
  }
};

run(async () => {
  // The answers of the page's own example, and what overlaps it.
  const first = await lock(['tab1', ['A', '@'], 'E', 'O_1', 0, 0]);
  await lock(['tab1', ['A', '@'], 'E', 'O_2', 0, 0]);
  await lock(['tab1', ['A', 'B'], 'S', 'O_2']);
  await lock(['tab1', ['@', '@'], 'X', 'O_1']);
  const again = await lock(['tab1', ['A', 'C'], 'E', 'O_1']);
  await lock(['tab1', 'A', 'E', 'O_1']);
  const beside = await lock(['tab1', ['B', 'C'], 'E', 'O_2']);
  const shorter = await lock(['tab1', ['A'], 'E', 'O_3']);
  await list(null, null);
  await list('tab1', 'O_1');
  await list(null, 'O_2');
  await list('tab2', null);
  for (const id of [again, first, first, beside, shorter]) await unlock(id);
  await list(null, null);

  // Each mode beside each, of one owner and of two.
  for (const held of 'SEXO') {
    for (const asked of 'SEXO') {
      for (const owner of ['O_1', 'O_2']) {
        const name = `${held}-${asked}-${owner}`;
        await lock([name, ['A'], held, 'O_1']);
        await lock([name, ['A'], asked, owner]);
      }
    }
  }
  for (const { uuid } of await fetch(null, null)) await unlock(uuid);

  // Fields are equal only if they are of one type.
  await lock(['typed', [1], 'X', 'O_1']);
  await lock(['typed', ['1'], 'X', 'O_1']);
  await lock(['typed', [true], 'X', 'O_1']);
  await lock(['typed', [1], 'X', 'O_1']);
  await lock(['typed', ['@'], 'X', 'O_2']);
  for (const { uuid } of await fetch('typed', null)) await unlock(uuid);

  // Promotion: the first wins.
  const one = await lock(['opt', ['A'], 'O', 'O_1']);
  const two = await lock(['opt', ['A'], 'O', 'O_2']);
  await promote(one);
  await list('opt', null);
  await promote(two);
  await unlock(two);
  await lock(['opt', ['A'], 'O', 'O_2']);
  await unlock(one);
  await promote('nobody');
  await unlock('nobody');

  // Waiting: time-out, and hand-over.
  const held = await lock(['wait', ['A'], 'X', 'O_1', 0, 60_000]);
  await lock(['wait', ['A'], 'X', 'O_2', 20]);
  const waiter = ask(['wait', ['A'], 'X', 'O_3', 50_000]);
  await until(async () => (await fetch('wait', null)).length === 2);
  await list('wait', null);
  await unlock(held);
  await unlock(await answered(waiter));

  // A timeout ends a lock, and the next gets it.
  const short = await lock(['short', ['A'], 'E', 'O_1', 0, 30]);
  const next = await lock(['short', ['A'], 'E', 'O_2', 50_000]);
  await unlock(short);
  await unlock(next);
  await list(null, null);
});
