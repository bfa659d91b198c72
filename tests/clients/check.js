// What the scripts for Node share. A script ends with an error at the first wrong answer.
'use strict';

const readline = require('node:readline');

const [respPort, enqueuePort] = process.argv.slice(2).map(Number);
const durable = process.env.KEYLATCH_KIND === 'durable';
const answers = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

// Asks whoever started the script to kill the server and to start it anew on the same ports.
async function restart() {
  console.log('restart');
  await answers.next();
}

// Asks again until the answer is true. Only the deadline below ends it.
async function until(ask) {
  while (!(await ask())) await new Promise((done) => setTimeout(done, 5));
}

// A flat array of names and values, as RESP2 has maps.
function map(flat) {
  const pairs = {};
  for (let at = 0; at < flat.length; at += 2) pairs[flat[at]] = flat[at + 1];
  return pairs;
}

function run(main) {
  const late = setTimeout(() => {
    console.error('no end after 60 s: an answer is missing');
    process.exit(1);
  }, 60_000);
  main().then(
    () => {
      clearTimeout(late);
      console.log('done');
      process.exit(0);
    },
    (error) => {
      console.error(error);
      process.exit(1);
    },
  );
}

module.exports = { respPort, enqueuePort, durable, restart, until, map, run };
