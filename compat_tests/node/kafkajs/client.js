// kafkajs on a leash: one JSON command a line on stdin, one JSON answer a line on stdout.
// Bytes travel as base64 text, null as null.
"use strict";

const readline = require("node:readline");
const { randomUUID } = require("node:crypto");
const {
  Kafka,
  CompressionCodecs,
  CompressionTypes,
  ConfigResourceTypes,
  logLevel,
} = require("kafkajs");
const { installCodecs } = require("./codecs");
const { aboutMember } = require("./members");

const WAIT_MS = 30_000;
const OFFSET_OUT_OF_RANGE = 1;
const TYPES = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

const text = (bytes) => (bytes == null ? null : Buffer.from(bytes).toString("base64"));
const bytes = (told) => (told == null ? null : Buffer.from(told, "base64"));

let watched = null;

// What it logs as an error is told to `heard`, and to nobody else.
function client(asked, heard = () => {}) {
  return new Kafka({
    clientId: "kafkajs",
    brokers: [asked.bootstrap],
    logLevel: logLevel.ERROR,
    logCreator: () => ({ log }) => heard(log.message),
    retry: { retries: 5, initialRetryTime: 50 },
  });
}

// The error that the broker gave, below whatever kafkajs wrapped around it.
function cause(error) {
  if (error.errors && error.errors.length) return cause(error.errors[0]);
  if (error.code === undefined && error.cause) return cause(error.cause);
  if (error.code === undefined && error.originalError) return cause(error.originalError);
  return error;
}

async function produce(asked) {
  const { settings } = asked;
  const producer = client(asked).producer({
    allowAutoTopicCreation: true,
    idempotent: settings["enable.idempotence"] === "true",
    maxInFlightRequests: 1,
  });
  await producer.connect();
  try {
    const messages = asked.records.map(([key, value, timestamp, partition, headers]) => ({
      key: bytes(key),
      value: bytes(value),
      partition,
      headers: named(headers),
      ...(timestamp == null ? {} : { timestamp: String(timestamp) }),
    }));
    const acks = settings.acks === "all" ? -1 : Number(settings.acks);
    const compression = TYPES[settings["compression.type"]];
    const offsets = [];
    for (const batch of batches(messages, Number(settings["max.request.size"]))) {
      const answers = await producer.send({ topic: asked.topic, acks, compression, messages: batch });
      const next = new Map();
      for (const { partition, baseOffset } of answers ?? []) next.set(partition, Number(baseOffset));
      for (const { partition } of batch) {
        const offset = next.get(partition) ?? -1;
        offsets.push(offset < 0 ? -1 : offset);
        next.set(partition, offset < 0 ? -1 : offset + 1);
      }
    }
    return offsets;
  } finally {
    await producer.disconnect();
  }
}

// kafkajs makes one batch a partition of whatever it is given.
function* batches(messages, limit) {
  let batch = [];
  let size = 0;
  for (const message of messages) {
    const more = (message.key?.length ?? 0) + (message.value?.length ?? 0);
    if (batch.length && size + more > limit) {
      yield batch;
      [batch, size] = [[], 0];
    }
    batch.push(message);
    size += more;
  }
  yield batch;
}

// kafkajs keeps headers by name; what stands there twice becomes a list.
function named(headers) {
  const found = {};
  for (const [name, value] of headers) {
    if (name in found) found[name] = [].concat(found[name], [bytes(value)]);
    else found[name] = bytes(value);
  }
  return found;
}

function told(message) {
  const headers = [];
  for (const [name, value] of Object.entries(message.headers ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) headers.push([name, text(one)]);
  }
  return [Number(message.offset), text(message.key), text(message.value), headers, Number(message.timestamp)];
}

// kafkajs consumes in groups only: a group of its own, which begins where the scenario says.
async function consume(asked, polling) {
  let heard;
  const consumer = client(asked, (message) => heard(message)).consumer({
    groupId: `reader-${randomUUID()}`,
    readUncommitted: !asked.committed,
    maxBytesPerPartition: 4 << 20,
    maxWaitTimeInMs: 500,
  });
  const records = [];
  let done;
  const finished = new Promise((resolve, reject) => {
    done = resolve;
    // It would begin anew at the start of the partition, and has no event for that.
    heard = (message) => {
      if (message.startsWith("Offset out of range")) {
        reject(Object.assign(new Error(message), { code: OFFSET_OUT_OF_RANGE }));
      }
    };
    setTimeout(() => reject(new Error(`${records.length} of ${asked.count} arrived`)), WAIT_MS).unref();
    consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error));
  });
  finished.catch(() => {}); // it is told where it is awaited
  const joined = new Promise((resolve) => consumer.on(consumer.events.GROUP_JOIN, resolve));
  const fetching = new Promise((resolve) => consumer.on(consumer.events.FETCH_START, resolve));
  await consumer.connect();
  try {
    await consumer.subscribe({ topic: asked.topic, fromBeginning: true });
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (partition === (asked.partition ?? 0) && records.length < asked.count) {
          if (Number(message.offset) >= (asked.offset ?? 0)) records.push(told(message));
          if (records.length === asked.count) done();
        }
      },
    });
    await Promise.race([joined, finished]);
    consumer.seek({ topic: asked.topic, partition: asked.partition ?? 0, offset: String(asked.offset ?? 0) });
    if (polling) fetching.then(polling);
    if (asked.count > 0) await finished;
  } finally {
    await consumer.disconnect();
  }
  return records;
}

async function watch(asked) {
  let begun;
  const polling = new Promise((resolve) => (begun = resolve));
  watched = consume(asked, begun);
  watched.catch(() => {}); // it is told when it is asked for
  await Promise.race([polling, watched]);
  return null;
}

async function administer(asked) {
  const admin = client(asked).admin();
  await admin.connect();
  try {
    return await ask(admin, asked);
  } finally {
    await admin.disconnect();
  }
}

async function ask(admin, asked) {
  const { op, topic } = asked;
  switch (op) {
    case "create_topic": {
      const configEntries = Object.entries(asked.configs).map(([name, value]) => ({ name, value }));
      await admin.createTopics({
        validateOnly: asked.validate_only,
        waitForLeaders: !asked.validate_only,
        topics: [
          { topic, numPartitions: asked.partitions, replicationFactor: asked.replication_factor, configEntries },
        ],
      }).then((made) => {
        if (!made) throw Object.assign(new Error("the topic exists"), { code: 36 });
      });
      return null;
    }
    case "delete_topic":
      await admin.deleteTopics({ topics: [topic] });
      return null;
    case "create_partitions":
      await admin.createPartitions({ topicPartitions: [{ topic, count: asked.total }] });
      return null;
    case "list_topics":
      return admin.listTopics();
    case "describe_topic": {
      const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
      const partitions = {};
      for (const one of topics[0].partitions) {
        partitions[one.partitionId] = { leader: one.leader, replicas: one.replicas, isr: one.isr };
      }
      return partitions;
    }
    case "describe_configs": {
      const answer = await admin.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }] });
      return Object.fromEntries(
        answer.resources[0].configEntries.map(({ configName, configValue }) => [configName, configValue]),
      );
    }
    case "alter_configs": {
      const configEntries = Object.entries(asked.configs).map(([name, value]) => ({ name, value }));
      await admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }] });
      return null;
    }
    case "describe_cluster": {
      const { brokers, controller } = await admin.describeCluster();
      return { controller, nodes: brokers.map(({ nodeId, host, port }) => [nodeId, `${host}:${port}`]) };
    }
    case "list_offset": {
      if (asked.timestamp < 0) {
        const found = (await admin.fetchTopicOffsets(topic)).find(({ partition }) => partition === asked.partition);
        return Number(asked.timestamp === -2 ? found.low : found.high);
      }
      const answer = await admin.fetchTopicOffsetsByTimestamp(topic, asked.timestamp);
      return Number(answer.find(({ partition }) => partition === asked.partition).offset);
    }
    default:
      throw new Error(`${op} is not known`);
  }
}

async function run(asked) {
  switch (asked.op) {
    case "produce":
      return produce(asked);
    case "consume":
      return consume(asked);
    case "watch":
      return watch(asked);
    case "watched":
      return watched;
    default:
      return asked.op.startsWith("member_") ? aboutMember(client(asked), asked) : administer(asked);
  }
}

async function main() {
  await installCodecs(CompressionCodecs, CompressionTypes);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer;
    try {
      answer = { ok: (await run(JSON.parse(line))) ?? null };
    } catch (error) {
      const found = cause(error);
      answer = { error: Number.isInteger(found.code) ? found.code : -1, text: String(found) };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
  process.exit(0);
}

main();
