'use strict';
/*
 * What applications do with npm's ali-ons, one story each:  node scenarios.js NAMESRV BROKER_ADDR [NAME ...]
 *
 * Prints "ok NAME (s)" or "FAIL NAME: why" a line, then "N passed, N failed"; exit status 1 if any failed. The stories run
 * side by side: each has its own topic and group. The client has no batch, one-way, pull, ordered consume, transaction or
 * request-reply. `sql` wants enablePropertyFilter=true on the broker.
 */
const crypto = require('crypto');
const net = require('net');
const { Consumer, Producer, Message } = require('ali-ons');

const [namesrv, broker, ...wanted] = process.argv.slice(2);
const run = Date.now().toString(36);
const quiet = { info() {}, warn() {}, error() {}, debug() {} };
// httpclient is for finding name servers by HTTP; the client insists on one even when it is told their addresses.
const common = { nameSrv: namesrv, logger: quiet, httpclient: {}, pollNameServerInteval: 1000, rebalanceInterval: 1000 };
const credentials = { accessKey: process.env.ROCKETMQ_ACCESS_KEY, secretKey: process.env.ROCKETMQ_SECRET_KEY };
if (credentials.accessKey) Object.assign(common, credentials); // then every request is signed
const PATIENCE = 3; // the stories give seconds of a quiet machine
const FIRST = 'CONSUME_FROM_FIRST_OFFSET';

// ---- stories -----------------------------------------------------------------------------------------------------

const stories = {
  async 'send-sync'() {
    const topic = await createTopic('sync', 4);
    const offsets = new Map();
    for (let i = 0; i < 40; i++) {
      const r = await producer.send(message(topic, 'a', `k${i}`, `body ${i}`));
      check(r.sendStatus === 'SEND_OK', `status ${r.sendStatus}`);
      check(/^[0-9A-F]{32}$/.test(r.msgId), `message id ${r.msgId}`);
      const queue = r.messageQueue.queueId;
      const before = offsets.get(queue);
      check(Number(r.queueOffset) === (before === undefined ? 0 : before + 1), `queue offset ${r.queueOffset} after ${before}`);
      offsets.set(queue, Number(r.queueOffset));
    }
    check(offsets.size === 4, `queues used: ${[...offsets.keys()]}`);
    const seen = await consume('sync', topic, '*');
    await until(30, () => seen.keys.size === 40, () => `received ${seen.keys.size}`);
    check(seen.bodies.get('k7') === 'body 7', `body ${seen.bodies.get('k7')}`);
  },

  async 'send-async'() { // every send is a promise: many in flight
    const topic = await createTopic('async', 4);
    const results = await Promise.all([...Array(200).keys()].map(i => producer.send(message(topic, 'a', `k${i}`, 'body'))));
    check(results.every(r => r.sendStatus === 'SEND_OK'), 'not all accepted');
    const places = new Set(results.map(r => `${r.messageQueue.queueId}/${r.queueOffset}`));
    check(places.size === 200, `places: ${places.size}`);
    const seen = await consume('async', topic, '*');
    await until(30, () => seen.keys.size === 200, () => `received ${seen.keys.size}`);
  },

  async 'send-large-compressed'() {
    const topic = await createTopic('large', 1);
    const text = 'abcdefghij'.repeat(9000);
    await producer.send(message(topic, 'a', 'large', text));
    const seen = await consume('large', topic, '*');
    await until(30, () => seen.keys.size === 1, () => 'nothing received');
    check(seen.bodies.get('large') === text, `body of ${seen.bodies.get('large').length} characters differs`);
  },

  async 'ordered-send'() { // messages of one sharding key stay in one queue, in order
    const topic = await createTopic('orderly', 4);
    const shards = [...Array(50).keys()].map(n => `order-${n}`).filter(key => queueOf(key, 4) !== 0).slice(0, 6);
    const queues = new Map();
    for (let i = 0; i < 60; i++) {
      const m = message(topic, 'a', `k${i}`, `${i % 6} ${i}`);
      m.shardingKey = shards[i % 6];
      const r = await producer.send(m);
      queues.set(i % 6, (queues.get(i % 6) || new Set()).add(r.messageQueue.queueId));
    }
    check([...queues.values()].every(q => q.size === 1), 'a sharding key went to several queues');
    const seen = await consume('orderly', topic, '*');
    await until(30, () => seen.keys.size === 60, () => `received ${seen.keys.size}`);
    const last = new Map();
    for (const body of seen.order) {
      const [key, n] = body.split(' ').map(Number);
      check((last.get(key) ?? -1) < n, `order ${key}: ${n} after ${last.get(key)}`);
      last.set(key, n);
    }
  },

  async 'tags'() {
    const topic = await createTopic('tags', 2);
    for (let i = 0; i < 90; i++) await producer.send(message(topic, `t${i % 3}`, `k${i}`, 'body'));
    const seen = await consume('tags', topic, 't0 || t2');
    await until(30, () => seen.keys.size === 60, () => `received ${seen.keys.size}`);
    check(!seen.tags.has('t1'), 'a filtered tag came through');
  },

  async 'sql'() {
    const topic = await createTopic('sql', 2);
    for (let i = 0; i < 40; i++) {
      const m = message(topic, 'a', `k${i}`, 'body');
      m.properties.n = String(i);
      await producer.send(m);
    }
    const seen = await consume('sql', topic, { expressionType: 'SQL92', subString: 'n BETWEEN 10 AND 19 OR n = 33' });
    await until(60, () => seen.keys.size >= 11, () => `received ${[...seen.keys]}`);
    check(seen.keys.size === 11 && seen.keys.has('k33') && !seen.keys.has('k20'), `received ${[...seen.keys]}`);
  },

  async 'long-poll'() {
    const topic = await createTopic('longpoll', 1);
    const delays = [];
    const c = await consumer('longpoll', topic, '*', {}, m => {
      if (m.keys !== 'warm') delays.push(Date.now() - Number(m.body.toString()));
    });
    await flowing(c, topic);
    for (let i = 0; i < 10; i++) {
      await producer.send(message(topic, 'a', `k${i}`, String(Date.now())));
      await sleep(100);
    }
    await until(10, () => delays.length === 10, () => `received ${delays.length}`);
    delays.sort((a, b) => a - b);
    check(delays[5] < 500, `median delay ms ${delays[5]}`);
  },

  async 'broadcast'() {
    const topic = await createTopic('broadcast', 2);
    const members = [new Set(), new Set()];
    for (const n of [0, 1]) {
      const c = await consumer('broadcast', topic, '*', { isBroadcast: true, instanceName: `broadcast${n}-${run}` }, m => members[n].add(m.keys));
      await flowing(c, topic);
    }
    for (let i = 0; i < 20; i++) await producer.send(message(topic, 'a', `k${i}`, 'body'));
    const all = n => [...members[n]].filter(k => k.startsWith('k')).length === 20;
    await until(30, () => all(0) && all(1), () => `received ${members.map(m => m.size)}`);
  },

  async 'rebalance'() {
    const topic = await createTopic('rebalance', 8);
    const queues = [new Set(), new Set()];
    const join = n => consumer('rebalance', topic, '*', { instanceName: `member${n}-${run}` }, (m, mq) => queues[n].add(mq.queueId));
    const shares = want => until(60, async () => {
      queues.forEach(q => q.clear());
      for (let i = 0; i < 16; i++) await producer.send(message(topic, 'a', `k${i}`, 'body'));
      await sleep(500);
      return queues[0].size === want[0] && queues[1].size === want[1] && new Set([...queues[0], ...queues[1]]).size === 8;
    }, () => `queues ${queues.map(q => [...q].sort())}, wanted ${want}`);
    const first = await join(0);
    await shares([8, 0]);
    await join(1);
    await shares([4, 4]);
    await first.close();
    await shares([0, 8]);
  },

  async 'offsets-survive'() {
    const topic = await createTopic('offsets', 2);
    for (let i = 0; i < 30; i++) await producer.send(message(topic, 'a', `a${i}`, 'body'));
    const first = new Set(), second = new Set();
    const c = await consumer('offsets', topic, '*', { instanceName: `offsets1-${run}` }, m => first.add(m.keys));
    await until(30, () => first.size === 30, () => `first time ${first.size}`);
    await sleep(500); // the last handler has to return before its offset counts
    await c.close();
    for (let i = 0; i < 10; i++) await producer.send(message(topic, 'a', `b${i}`, 'body'));
    await consumer('offsets', topic, '*', { instanceName: `offsets2-${run}` }, m => second.add(m.keys));
    await until(30, () => second.size >= 10, () => `second time ${second.size}`);
    await sleep(500);
    check([...second].every(k => k.startsWith('b')), `read again: ${[...second]}`);
  },

  async 'delay'() {
    const topic = await createTopic('delay', 1);
    const took = new Map();
    const c = await consumer('delay', topic, '*', {}, m => took.set(m.keys, Date.now() - Number(m.bornTimestamp)));
    await flowing(c, topic);
    for (const level of [ 1, 2, 0 ]) {
      const m = message(topic, 'a', `level${level}`, 'body');
      m.delayTimeLevel = level;
      await producer.send(m);
    }
    await until(20, () => took.size === 4, () => `arrived: ${[...took]}`);
    check(took.get('level0') < 900, `not delayed: ${[...took]}`);
    check(took.get('level1') >= 900 && took.get('level1') < 3000, `1 s: ${[...took]}`);
    check(took.get('level2') >= 4900 && took.get('level2') < 8000, `5 s: ${[...took]}`);
  },

  async 'retry-dead-letter'() { // the client leaves the delay to the broker: 10 s before the second try
    const topic = await createTopic('retry', 1);
    const tries = [];
    const c = await consumer('retry', topic, '*', { maxReconsumeTimes: 1 }, m => {
      if (m.keys !== 'bad') return;
      tries.push(m.reconsumeTimes);
      throw new Error('never accepted');
    });
    await producer.send(message(topic, 'a', 'bad', 'never accepted'));
    await producer.send(message(topic, 'a', 'good', 'accepted'));
    await until(60, () => tries.length === 2, () => `tried ${tries}`);
    check(tries[0] === 0 && tries[1] === 1, `tries ${tries}`);
    const dead = `%DLQ%${c.consumerGroup}`;
    await updateTopic(dead, 1); // dead letters are write-only; permission 6 lets us look
    const seen = await consume('dead', dead, '*');
    await until(45, () => seen.keys.has('bad'), () => 'no dead letter');
    check(seen.retryTopic === topic, `dead letter of ${seen.retryTopic}`);
  },
};

// ---- helpers -----------------------------------------------------------------------------------------------------

let producer;
const open = [];
const sleep = ms => new Promise(done => setTimeout(done, ms));

function check(holds, why) {
  if (!holds) throw new Error(why);
}

async function until(seconds, condition, why) {
  const deadline = Date.now() + PATIENCE * seconds * 1000;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`after ${PATIENCE * seconds} s: ${why()}`);
    await sleep(50);
  }
}

/** The client's own choice of a queue; it takes the answer 0 for "any queue", so stories avoid keys that fall there. */
function queueOf(shardingKey, queues) {
  return crypto.createHash('md5').update(shardingKey).digest().readUInt32BE() % queues;
}

function message(topic, tag, key, body) {
  const m = new Message(topic, tag, body);
  m.keys = [key];
  return m;
}

/** A started consumer; `handle` throws to have the message again. */
async function consumer(name, topic, expression, options, handle) {
  const c = new Consumer({ ...common, consumerGroup: `GID_node_${name}_${run}`, consumeFromWhere: FIRST,
    instanceName: `${name}-${run}`, ...options });
  c.on('error', () => {}); // thrown by handlers on purpose; what matters is seen by the stories
  open.push(c);
  c.subscribe(topic, expression, async (m, mq) => { if (m.keys === 'warm') c.warm = true; return handle(m, mq); });
  await c.ready();
  return c;
}

/** Waits until messages reach the consumer: with upstream's broker that can take 30 s. */
async function flowing(c, topic) {
  await producer.send(message(topic, 'a', 'warm', '0'));
  await until(60, () => c.warm, () => 'the first message never came');
}

/** Reads a topic from its beginning and remembers what came. */
async function consume(name, topic, expression) {
  const seen = { keys: new Set(), tags: new Set(), bodies: new Map(), order: [], retryTopic: null };
  await consumer(`read_${name}`, topic, expression, {}, m => {
    seen.keys.add(m.keys);
    seen.tags.add(m.tags);
    seen.bodies.set(m.keys, m.body.toString());
    seen.order.push(m.body.toString());
    seen.retryTopic = m.retryTopic;
  });
  return seen;
}

/** One remoting request by hand: the client has no admin calls. */
function ask(address, code, extFields) {
  const [host, port] = address.split(':');
  if (credentials.accessKey) {
    extFields = { ...extFields, AccessKey: credentials.accessKey };
    const content = Object.keys(extFields).sort().map(key => extFields[key]).join('');
    extFields.Signature = crypto.createHmac('sha1', credentials.secretKey).update(content).digest('base64');
  }
  const header = Buffer.from(JSON.stringify({ code, flag: 0, language: 'JAVA', opaque: 1, version: 401, extFields }));
  const frame = Buffer.alloc(8);
  frame.writeInt32BE(4 + header.length, 0);
  frame.writeInt32BE(header.length, 4);
  return new Promise((done, fail) => {
    const socket = net.connect(Number(port), host, () => socket.write(Buffer.concat([frame, header])));
    let data = Buffer.alloc(0);
    socket.setTimeout(15000, () => socket.destroy(new Error(`${address} does not answer request ${code}`)));
    socket.on('error', fail);
    socket.on('data', chunk => {
      data = Buffer.concat([data, chunk]);
      if (data.length < 4 || data.length < 4 + data.readInt32BE(0)) return;
      socket.end();
      done(JSON.parse(data.subarray(8, 8 + (data.readInt32BE(4) & 0xffffff)).toString()));
    });
  });
}

async function updateTopic(topic, queues) {
  const answer = await ask(broker, 17, { topic, defaultTopic: 'TBW102', readQueueNums: String(queues),
    writeQueueNums: String(queues), perm: '6', topicFilterType: 'SINGLE_TAG', topicSysFlag: '0', order: 'false' });
  check(answer.code === 0, `creating ${topic}: ${answer.code} ${answer.remark}`);
}

async function createTopic(name, queues) {
  const topic = `node_${name}_${run}`;
  await updateTopic(topic, queues);
  await until(15, async () => (await ask(namesrv, 105, { topic })).code === 0, () => `${topic} has no route`);
  return topic;
}

async function tell(name) {
  const began = Date.now();
  try {
    await stories[name]();
    console.log(`ok ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
    return true;
  } catch (error) {
    console.log(`FAIL ${name}: ${error.message}`);
    return false;
  }
}

(async () => {
  producer = new Producer({ ...common, producerGroup: `GID_node_p_${run}`, instanceName: `producer-${run}` });
  producer.on('error', () => {});
  await producer.ready();
  const results = await Promise.all((wanted.length ? wanted : Object.keys(stories)).map(tell));
  const passed = results.filter(Boolean).length;
  console.log(`${passed} passed, ${results.length - passed} failed`);
  await Promise.race([Promise.allSettled(open.map(c => c.close())), sleep(3000)]);
  process.exit(passed === results.length ? 0 : 1);
})();
