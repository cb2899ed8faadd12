// A member of a group: tells what happens to it, a line of JSON each, until standard input ends.
// Each line of standard input has it commit what it read.

const EVERY_MS = 100;

export async function member(kafka, { topic, group }, lines) {
  const next = {};
  const consumer = kafka.consumer({
    groupId: group,
    sessionTimeout: 10_000,
    heartbeatInterval: EVERY_MS,
    maxWaitTimeInMs: EVERY_MS,
  });
  const { GROUP_JOIN, REBALANCING, CRASH } = consumer.events;
  consumer.on(GROUP_JOIN, ({ payload }) => say({ has: payload.memberAssignment[topic] ?? [] }));
  consumer.on(REBALANCING, () => say({ has: [] }));
  consumer.on(CRASH, ({ payload }) => say({ failure: String(payload.error) }));
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      next[partition] = Number(message.offset) + 1;
      say({ read: [partition, Number(message.offset)] });
    },
  });
  for await (const _ of lines) {
    const places = Object.entries(next);
    await consumer.commitOffsets(
      places.map(([partition, offset]) => ({ topic, partition: Number(partition), offset: String(offset) })),
    );
    say({ committed: true });
  }
  await consumer.disconnect();
  return {};
}

function say(what) {
  process.stdout.write(`${JSON.stringify(what)}\n`);
}
