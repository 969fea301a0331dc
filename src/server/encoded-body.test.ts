/** Bodies that are compressed, well and badly. */
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { beforeAll, describe, expect, it } from "vitest";
import { hi } from "../../test/support/asked.ts";
import { JSON_HEADERS, servedApp, tinyModel, tinySource } from "../../test/support/served.ts";
import type { LanguageModel } from "../language/language-model.ts";
import type { App } from "./routes/route.ts";

/** By zstd 1.5.4: the body below without its size, with it and a checksum, as two frames with one to be skipped; and a window of 2 GB. */
const ZSTD = {
  streamed:
    "28b52ffd00500d0200b2440f1290cf01ece66260b3291ae7ee1397a9ebbf9437f0a3ebf524a1a51d8c7b95ce97aea57be6e0b0e33cbfd983b7821f1b9518bb1dbc3a25cf677d5ebb0d00",
  sized:
    "28b52ffd244b2d0200b244101890a72d06b455bf8d651b99a2ca6fd646ee27b3ab38ffb9048bb0158f907b180a9a186b33d85ebcc5044c4ea785ed3b995685ad2728aa87261fd0ecf6b940a25500c42b2579",
  frames:
    "28b52ffd0458a100007b226d6f64656c223a2274696e79222c226d657366555df9502a4d1804000000deadbeef28b52ffd0058b901007361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a226869227d5d2c226d61785f746f6b656e73223a347d",
  window: "28b52ffd00a8010000",
};

let llm: LanguageModel;
let app: App;
beforeAll(async () => {
  llm = await tinyModel();
  app = servedApp({ models: [tinySource(llm)] });
});

describe("bodies that are compressed", () => {
  const body = Buffer.from(JSON.stringify({ model: "tiny", messages: hi, max_tokens: 4 }));
  const zstd = (hex: string) => Buffer.from(hex, "hex");
  const send = (bytes: Uint8Array, encoding: string, served = app) =>
    served.request("/v1/chat/completions", {
      method: "POST",
      headers: { ...JSON_HEADERS, "content-encoding": encoding },
      body: bytes as BodyInit,
    });

  it.each<[string, Buffer]>([
    ["gzip", gzipSync(body)],
    ["x-gzip", gzipSync(body)],
    ["br", brotliCompressSync(body)],
    ["deflate", deflateSync(body)],
    ["identity", body],
    ["br, gzip", gzipSync(brotliCompressSync(body))],
    ["zstd", zstd(ZSTD.streamed)],
    ["zstd", zstd(ZSTD.sized)],
    ["zstd", zstd(ZSTD.frames)],
  ])("by %s are read", async (encoding, bytes) => {
    const response = await send(bytes, encoding);
    expect([response.status, (await response.json()).object]).toEqual([200, "chat.completion"]);
  });

  it("are refused where they are no such thing, too large, or of another kind", async () => {
    const small = servedApp({ models: [tinySource(llm)], limits: { bodyBytes: 1000 } });
    const bomb = Buffer.alloc(1_000_000, 0x20);
    for (const [bytes, encoding, status] of [
      [body, "gzip", 400],
      [body, "br", 400],
      [body, "zstd", 400],
      [zstd(ZSTD.streamed).subarray(0, 20), "zstd", 400],
      [zstd(ZSTD.streamed).subarray(0, 6), "zstd", 400],
      [zstd(ZSTD.window), "zstd", 413],
      [gzipSync(bomb), "gzip", 413],
      [brotliCompressSync(bomb), "br", 413],
      [body, "compress", 415],
    ] as const) {
      const response = await send(bytes, encoding, status === 413 ? small : app);
      expect([encoding, response.status]).toEqual([encoding, status]);
    }
  });
});
