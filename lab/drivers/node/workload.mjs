// The lab's workload through the official Node.js driver. Usage: workload.mjs URI OUTPUT [SUFFIX]; see ../README.md.
import { createWriteStream } from 'node:fs';
import { finished } from 'node:stream/promises';
import { setTimeout } from 'node:timers/promises';
import { MongoClient } from 'mongodb';

const [uri, path, suffix = ''] = process.argv.slice(2);
const output = createWriteStream(path);
const name = 'lab_node' + suffix;

function record(client, app) {
  const started = new Map();
  client.on('commandStarted', (event) => {
    const { command, commandName } = event;
    const collection = commandName === 'getMore' ? command.collection : command[commandName];
    started.set(event.requestId, {
      ns: typeof collection === 'string' ? `${event.databaseName}.${collection}` : event.databaseName,
      unacknowledged: command.writeConcern?.w === 0,
      at: process.hrtime.bigint(),
    });
  });
  const write = (event, outcome, facts) => {
    const { ns, unacknowledged } = started.get(event.requestId);
    started.delete(event.requestId);
    const line = {
      driver: 'node', client: app, request_id: event.requestId >>> 0, command: event.commandName, ns,
      us: Math.ceil(event.duration * 1000), outcome, ...facts, server: event.address,
    };
    if (unacknowledged) line.unacknowledged = true;
    output.write(JSON.stringify(line) + '\n');
  };
  client.on('commandSucceeded', (event) => {
    const reply = event.reply ?? {};
    const facts = {};
    if (reply.cursor) {
      facts.cursor = Number(reply.cursor.id);
      facts.docs = (reply.cursor.firstBatch ?? reply.cursor.nextBatch).length;
    }
    if (['insert', 'update', 'delete'].includes(event.commandName) && reply.n !== undefined) {
      facts.n = reply.n;
      if (reply.nModified !== undefined) facts.n_modified = reply.nModified;
    }
    if (reply.upserted?.length) facts.n_upserted = reply.upserted.length;
    if (reply.writeErrors?.length) facts.write_errors = reply.writeErrors.map((error) => error.code);
    write(event, 'ok', facts);
  });
  client.on('commandFailed', (event) => {
    write(event, 'failed', event.failure.code === undefined ? {} : { code: event.failure.code });
  });
}

async function withClient(app, options, body) {
  const client = new MongoClient(uri, { appName: app, monitorCommands: true, retryWrites: false, ...options });
  record(client, app);
  try {
    await body(client.db(name));
  } finally {
    await client.close();
  }
}

// What is meant to fail: that it does, or not, is the server's affair and stands in the record.
const expectError = (promise) => promise.catch(() => {});
const range = (count, make) => Array.from({ length: count }, (_, i) => make(i));

async function basics(db) {
  const items = db.collection('items');
  await items.insertOne({ _id: 0, kind: 'single' });
  await items.insertMany(range(150, (i) => ({ _id: i + 1, n: i % 7, tag: `t${i % 5}`, sub: { x: i, y: [i, i + 1] } })));
  // In a collection of their own: the server reads whole collections, so they would slow down everything else.
  await db.collection('large').insertMany(range(8, (i) => ({ _id: 1000 + i, pad: 'x'.repeat(400_000) })));
  await items.find({ n: 3 }).toArray();
  await items.find({ n: 3 }, { projection: { tag: 1 } }).sort({ _id: -1 }).skip(2).limit(5).toArray();
  await items.find({ n: { $gte: 2 }, tag: 't1' }).toArray();
  await items.find({ tag: 't1', n: { $gte: 2 } }).toArray();
  await items.find({ _id: { $lt: 100 } }).batchSize(30).toArray();
  for (const width of [1, 5, 40]) await items.find({ _id: { $in: range(width, (i) => i) } }).toArray();
  await items.find({ $or: [{ n: 1 }, { tag: 't2' }] }).toArray();
  await items.find({ tag: /^t[12]/ }).toArray();
  await db.collection('large').find({ _id: { $gte: 1000 } }).toArray();
  await items.findOne({ _id: 'absent' });
  await items.countDocuments({ n: 2 });
  await items.estimatedDocumentCount();
  await items.distinct('tag', { n: { $lt: 5 } });
  await items.aggregate([{ $match: { n: { $gt: 1 } } }, { $group: { _id: '$tag', c: { $sum: '$n' } } }, { $sort: { _id: 1 } }]).toArray();
  await items.createIndex({ n: 1, tag: -1 });
  await items.listIndexes().toArray();
  await db.listCollections().toArray();
}

async function writes(db) {
  const items = db.collection('items');
  await items.updateOne({ _id: 5 }, { $set: { n: 99 }, $inc: { hits: 1 } });
  await items.updateOne({ _id: 5 }, { $set: { n: 99 } });
  await items.updateMany({ tag: 't3' }, { $set: { seen: true } });
  await items.replaceOne({ _id: 'new' }, { kind: 'replaced' }, { upsert: true });
  await items.findOneAndUpdate({ _id: 6 }, { $inc: { n: 1 } });
  await items.findOneAndDelete({ _id: 8 });
  await items.deleteOne({ _id: 9 });
  await items.deleteMany({ n: 4 });
  await items.bulkWrite([
    { insertOne: { document: { _id: 'b1' } } },
    { insertOne: { document: { _id: 'b2' } } },
    { updateOne: { filter: { _id: 'b1' }, update: { $set: { a: 1 } } } },
    { updateMany: { filter: { n: 1 }, update: { $inc: { k: 1 } } } },
    { replaceOne: { filter: { _id: 'b2' }, replacement: { a: 2 } } },
    { deleteOne: { filter: { _id: 'b1' } } },
    { deleteMany: { filter: { _id: 'b2' } } },
    { insertOne: { document: { _id: 'b3' } } },
  ]);
  await expectError(items.bulkWrite(
    [{ insertOne: { document: { _id: 'b4' } } }, { insertOne: { document: { _id: 1 } } }, { insertOne: { document: { _id: 2 } } }],
    { ordered: false },
  ));
}

async function errors(db) {
  await expectError(db.collection('items').insertOne({ _id: 1 }));
  await expectError(db.command({ noSuchCommand: 1 }));
  await expectError(db.collection('items').updateOne({ _id: 2 }, { $noSuchOperator: { a: 1 } }));
  await expectError(db.collection('items').aggregate([{ $noSuchStage: {} }]).toArray());
}

async function cursors(db) {
  const cursor = db.collection('items').find({}, { batchSize: 10 });
  for (let i = 0; i < 15; i++) await cursor.next();
  await cursor.close();
}

// FerretDB answers these though asked not to, so nothing may be read on this connection afterwards. A client that closes
// with unread answers resets the connection, so another one sees first that all of them have arrived.
async function unacknowledged(db, witness) {
  const silent = db.collection('silent', { writeConcern: { w: 0 } });
  await silent.insertOne({ _id: 1 });
  await silent.updateOne({ _id: 1 }, { $set: { a: 1 } });
  await silent.deleteOne({ _id: 1 });
  await silent.insertOne({ _id: 'last' });
  while (!(await witness.collection('silent').findOne({ _id: 'last' }))) await setTimeout(10);
}

async function worker(db, number) {
  const pool = db.collection('pool');
  for (let turn = 0; turn < 18; turn++) {
    await pool.insertOne({ w: number, t: turn });
    await pool.find({ w: number, t: { $lte: turn } }, { batchSize: 10 }).toArray();
    await pool.updateOne({ w: number, t: turn }, { $set: { done: true } });
  }
}

await withClient('node-main', {}, async (db) => {
  await db.dropDatabase();
  for (const part of [basics, writes, errors, cursors]) await part(db);
});
await withClient('node-silent', { maxPoolSize: 1 }, (db) =>
  withClient('node-witness', {}, (witness) => unacknowledged(db, witness)),
);
await withClient('node-pool', { maxPoolSize: 4 }, (db) => Promise.all(range(6, (number) => worker(db, number))));
output.end();
await finished(output);
