// Members of groups: each consumes on its own until it leaves; what it owns and has read is looked at in between.
"use strict";

const members = new Map();

async function join(kafka, asked) {
  const consumer = kafka.consumer({
    groupId: asked.group,
    sessionTimeout: 6_000,
    rebalanceTimeout: 6_000,
    heartbeatInterval: 200,
    maxWaitTimeInMs: 100,
  });
  const member = { consumer, topic: asked.topic, owned: [], read: [], next: new Map(), failed: null };
  members.set(asked.member, member);
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.owned = payload.memberAssignment[asked.topic] ?? [];
  });
  consumer.on(consumer.events.REBALANCING, () => {
    member.owned = [];
  });
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    if (!payload.restart) member.failed = payload.error;
  });
  await consumer.connect();
  await consumer.subscribe({ topic: asked.topic, fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      member.read.push(String(message.value));
      member.next.set(partition, String(Number(message.offset) + 1));
    },
  });
  return null;
}

async function commit({ consumer, topic, next }) {
  await consumer.commitOffsets([...next].map(([partition, offset]) => ({ topic, partition, offset })));
  return null;
}

async function aboutMember(kafka, asked) {
  if (asked.op === "member_join") return join(kafka, asked);
  const member = members.get(asked.member);
  if (!member) throw new Error(`${asked.member} has not joined`);
  if (member.failed) throw member.failed;
  switch (asked.op) {
    case "member_look":
      return { owned: [...member.owned].sort(), read: member.read };
    case "member_commit":
      return commit(member);
    case "member_leave":
      members.delete(asked.member);
      await member.consumer.disconnect();
      return null;
    default:
      throw new Error(`${asked.op} is not known`);
  }
}

module.exports = { aboutMember };
