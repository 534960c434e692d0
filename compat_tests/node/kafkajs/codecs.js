// The codecs that kafkajs leaves to plug-ins.
"use strict";

const lz4 = require("lz4js");
const { hash: xxh32 } = require("lz4js/xxh32");
const snappy = require("snappyjs");
const { ZstdCodec } = require("zstd-codec");

const XERIAL = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00]);
const LZ4_BLOCK = 65_536;

// Snappy's blocks as snappy-java frames them: a header of 16 bytes, then size and block, over and over.
function unsnap(buffer) {
  if (!buffer.subarray(0, 8).equals(XERIAL)) return Buffer.from(snappy.uncompress(buffer));
  const blocks = [];
  for (let at = 16; at < buffer.length; ) {
    const size = buffer.readInt32BE(at);
    blocks.push(Buffer.from(snappy.uncompress(buffer.subarray(at + 4, at + 4 + size))));
    at += 4 + size;
  }
  return Buffer.concat(blocks);
}

// A frame as Kafka takes it: independent blocks of 64 KiB, no checksums. The frames of lz4js itself depend on each other.
function lz4Frame(buffer) {
  const flags = Buffer.from([0x60, 0x40]);
  const parts = [Buffer.from([0x04, 0x22, 0x4d, 0x18]), flags, Buffer.from([(xxh32(0, flags, 0, 2) >> 8) & 0xff])];
  const table = new Uint32Array(1 << 16);
  for (let at = 0; at < buffer.length; at += LZ4_BLOCK) {
    const block = buffer.subarray(at, at + LZ4_BLOCK);
    const packed = Buffer.alloc(lz4.compressBound(block.length));
    table.fill(0);
    const size = lz4.compressBlock(block, packed, 0, block.length, table);
    const stored = size === 0 || size >= block.length;
    const head = Buffer.alloc(4);
    head.writeUInt32LE(stored ? (block.length | 0x80000000) >>> 0 : size);
    parts.push(head, stored ? block : packed.subarray(0, size));
  }
  parts.push(Buffer.alloc(4));
  return Buffer.concat(parts);
}

async function installCodecs(codecs, types) {
  const zstd = await new Promise((resolve) => ZstdCodec.run((made) => resolve(new made.Streaming())));
  codecs[types.Snappy] = () => ({
    compress: async ({ buffer }) => Buffer.from(snappy.compress(buffer)),
    decompress: async (buffer) => unsnap(buffer),
  });
  codecs[types.LZ4] = () => ({
    compress: async ({ buffer }) => lz4Frame(buffer),
    decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
  });
  codecs[types.ZSTD] = () => ({
    compress: async ({ buffer }) => Buffer.from(zstd.compress(buffer)),
    decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
  });
}

module.exports = { installCodecs };
