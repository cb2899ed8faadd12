// Drives kafkajs for the tests. The first line of standard input is the call, the lines after it
// are records to produce; standard output is one line of JSON with the answer.
// A member of a group tells more lines before, one for each thing that happens to it (member.js).

import readline from "node:readline";
import kafkajs from "kafkajs";
import { member } from "./member.js";

const { CompressionTypes, Kafka, Partitioners, logLevel } = kafkajs;

const DEADLINE_MS = 60_000;
const FETCH_BYTES = 1 << 20;
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP };

const verbs = {
  create_topic: (kafka, call) => withAdmin(kafka, (admin) => createTopic(admin, call)),
  delete_topic: (kafka, call) => withAdmin(kafka, (admin) => deleteTopic(admin, call)),
  partitions: (kafka, call) => withAdmin(kafka, (admin) => partitions(admin, call)),
  span: (kafka, call) => withAdmin(kafka, (admin) => span(admin, call)),
  offset_for_time: (kafka, call) => withAdmin(kafka, (admin) => offsetForTime(admin, call)),
  produce,
  steady,
  member,
};

async function main() {
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const call = JSON.parse((await lines.next()).value);
  const kafka = new Kafka({
    brokers: call.bootstrap.split(","),
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 50, retries: 8 },
  });
  return verbs[call.verb](kafka, call, lines);
}

async function withAdmin(kafka, ask) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await ask(admin);
  } finally {
    await admin.disconnect();
  }
}

async function createTopic(admin, { topic, partitions: numPartitions, configs }) {
  const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }));
  const topics = [{ topic, numPartitions, replicationFactor: 1, configEntries }];
  // It answers false, not an error, for a topic that exists.
  return (await admin.createTopics({ topics, waitForLeaders: true })) ? {} : { code: 36 };
}

async function deleteTopic(admin, { topic }) {
  await admin.deleteTopics({ topics: [topic] });
  return {};
}

// Asks for all topics, because asking for one by name may create it.
async function partitions(admin, { topic }) {
  const found = (await admin.fetchTopicMetadata()).topics.find(({ name }) => name === topic);
  return { partitions: found ? found.partitions.length : 0 };
}

async function span(admin, { topic, partition }) {
  const rows = await admin.fetchTopicOffsets(topic);
  const { low, high } = rows.find((row) => row.partition === partition);
  return { low: Number(low), high: Number(high) };
}

async function offsetForTime(admin, { topic, partition, timestamp_ms: timestampMs }) {
  // The end of the partition stands for "no record is that young".
  const rows = await admin.fetchTopicOffsetsByTimestamp(topic, timestampMs);
  const { high } = await span(admin, { topic, partition });
  const offset = Number(rows.find((row) => row.partition === partition).offset);
  return { offset: offset === high ? null : offset };
}

async function produce(kafka, call, lines) {
  const messages = [];
  for await (const line of lines) messages.push(toMessage(JSON.parse(line), call.partition));
  const producer = kafka.producer({
    createPartitioner: Partitioners.DefaultPartitioner,
    idempotent: call.idempotent,
  });
  await producer.connect();
  try {
    return { positions: positions(await send(producer, call, messages), messages, call) };
  } finally {
    await producer.disconnect();
  }
}

// Produces one number after the other, and reads them back, until standard input ends.
async function steady(kafka, call, lines) {
  const going = { ended: false, produced: false, late: Infinity };
  lines.next().then(() => {
    going.ended = true;
    going.late = Date.now() + DEADLINE_MS;
  });
  const outcome = { acked: [], refused: [], read: {} };
  await Promise.all([produceSteadily(kafka, call, going, outcome), readSteadily(kafka, call, going, outcome)]);
  return { outcome };
}

async function produceSteadily(kafka, { topic, partitions, every_ms: everyMs }, going, outcome) {
  const producer = kafka.producer({
    createPartitioner: Partitioners.DefaultPartitioner,
    idempotent: true,
    maxInFlightRequests: 1,
    retry: { initialRetryTime: 50, retries: 50 },
  });
  await producer.connect();
  try {
    for (let number = 0; !going.ended; number++) {
      const messages = [{ partition: number % partitions, value: String(number) }];
      try {
        await producer.send({ topic, messages, acks: -1 });
        outcome.acked.push(number);
      } catch (failure) {
        outcome.refused.push(String(failure));
      }
      await pause(everyMs);
    }
  } finally {
    going.produced = true;
    await producer.disconnect();
  }
}

// kafkajs's consumer always joins a group; what it fetches with, and knows of leaders, needs none.
async function readSteadily(kafka, { topic, partitions }, going, outcome) {
  const all = Array.from({ length: partitions }, (_, partition) => partition);
  const next = all.map(() => 0);
  for (const partition of all) outcome.read[partition] = [];
  const create = Object.getOwnPropertySymbols(kafka).find((one) => String(one).includes("createCluster"));
  const cluster = kafka[create]({ metadataMaxAge: 300_000, allowAutoTopicCreation: false });
  const count = () => Object.values(outcome.read).reduce((sum, numbers) => sum + numbers.length, 0);
  const isOver = () => (going.produced && count() >= outcome.acked.length) || Date.now() > going.late;
  await cluster.connect();
  await cluster.addTargetTopic(topic);
  while (!isOver()) {
    try {
      for (const [nodeId, led] of Object.entries(cluster.findLeaderForPartitions(topic, all))) {
        const broker = await cluster.findBroker({ nodeId });
        const asked = led.map((partition) => ({ partition, fetchOffset: next[partition], maxBytes: FETCH_BYTES }));
        const topics = [{ topic, partitions: asked }];
        const { responses } = await broker.fetch({ isolationLevel: 0, maxWaitTime: 20, maxBytes: FETCH_BYTES, topics });
        for (const { partition, messages } of responses.flatMap((response) => response.partitions)) {
          for (const { offset, value } of messages.filter((one) => Number(one.offset) >= next[partition])) {
            outcome.read[partition].push(Number(value.toString()));
            next[partition] = Number(offset) + 1;
          }
        }
      }
    } catch {
      await pause(50);
      await cluster.refreshMetadata().catch(() => {});
    }
  }
  await cluster.disconnect();
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function send(producer, { topic, codec }, messages) {
  return producer.send({ topic, messages, acks: -1, compression: CODECS[codec] });
}

function toMessage(record, partition) {
  return {
    key: bytes(record.key),
    value: bytes(record.value),
    headers: headersOf(record.headers),
    timestamp: String(record.timestamp_ms),
    ...(partition === null ? {} : { partition }),
  };
}

function bytes(text) {
  return text === null ? null : Buffer.from(text, "base64");
}

// kafkajs holds headers in an object: a name that comes twice has a list of values.
function headersOf(rows) {
  const found = {};
  for (const { key, value } of rows) (found[key] ??= []).push(bytes(value));
  return Object.fromEntries(
    Object.entries(found).map(([key, values]) => [key, values.length > 1 ? values : values[0]]),
  );
}

// The answer names the first offset of each partition's batch, not each record's.
function positions(answers, messages, { partition: asked }) {
  if (asked === null) return answers.map(({ partition, baseOffset }) => [partition, Number(baseOffset)]);
  const [{ partition, baseOffset }] = answers;
  return messages.map((_, index) => [partition, Number(baseOffset) + index]);
}

function refusal(failure) {
  const cause = failure.errors?.[0] ?? failure.cause ?? failure;
  return { code: cause.code ?? failure.code, failure: String(failure) };
}

main()
  .catch(refusal)
  .then((answer) => process.stdout.write(`${JSON.stringify(answer)}\n`));
