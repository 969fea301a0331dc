/** What drafts of a head gain of what rows allow, on a clock that goes by the costs of a CPU's steps. */
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { Decoder } from "./decoder.ts";
import { generate } from "./generate.ts";
import { Tokenizer } from "./tokenizer.ts";

const json = JSON.parse(readFileSync(new URL("byte-level-tokenizer.json.golden", import.meta.url), "utf8"));
const tokenizer = new Tokenizer(json, { eos_token: "<|end|>" });

/** Milliseconds of steps by their rows, and of a drafted token: Qwen3.5-0.8B with AMX (bench/results/mtp.md). */
const STEP = [0, 25.4, 30.2, 32.3, 37.8, 41.1, 44.7, 46.7, 61];
const DRAFT = 4.71;
const ROWS = 8;

let now = 0;
beforeEach(() => void vi.spyOn(performance, "now").mockImplementation(() => now));
afterEach(() => void vi.restoreAllMocks());

/** A number from 0 to 1 that follows from another. */
function random(i: number): number {
  const x = Math.sin(12.9898 * (i + 1)) * 43758.5453;
  return x - Math.floor(x);
}

/** No token of the text is the one before it, nor are two pairs alike for long, so that nothing is looked up. */
const tokenAt = (position: number) => 3 + 2 * Math.floor(100 * random(position)) + (position % 2);

function logitsOf(ids: readonly number[]): Float32Array {
  const { vocabSize } = tokenizer;
  const logits = new Float32Array(ids.length * vocabSize);
  for (const [row, id] of ids.entries()) logits[row * vocabSize + id] = 50;
  return logits;
}

/** Writes the text, whatever it is given; its head guesses right as often as is said. Only its last step's start can be gone back to. */
class ScriptedDecoder implements Decoder {
  readonly contextLength = 4096;
  position = 0;
  recomputed = 0;
  #start = 0;
  readonly #acceptance: number;

  constructor(acceptance: number) {
    this.#acceptance = acceptance;
  }

  get draftRows(): number {
    return ROWS - this.recomputed;
  }

  async prefill(ids: readonly number[]): Promise<Float32Array> {
    return (await this.allLogits(ids)).subarray(-tokenizer.vocabSize);
  }

  step(id: number): Promise<Float32Array> {
    return this.prefill([id]);
  }

  async allLogits(ids: readonly number[]): Promise<Float32Array> {
    now += STEP[Math.min(ROWS, ids.length + this.recomputed)]!;
    this.#start = this.position - this.recomputed;
    this.recomputed = 0;
    const first = this.position + 1;
    this.position += ids.length;
    return logitsOf(ids.map((_, i) => tokenAt(first + i)));
  }

  async draft(ids: readonly number[]): Promise<Float32Array> {
    now += DRAFT;
    const next = this.position + ids.length;
    return logitsOf([tokenAt(next) + (random(7 * next) < this.#acceptance ? 0 : 1)]);
  }

  rewind(position: number): void {
    if (position < this.position) this.recomputed = position - this.#start;
    this.position = position;
  }
}

/** Times as fast as without drafts, for the best number of tokens at a time, always. */
function bound(acceptance: number): number {
  const gains = Array.from({ length: ROWS - 1 }, (_, i) => {
    const drafted = i + 1;
    const tokens = (1 - acceptance ** (drafted + 1)) / (1 - acceptance);
    let again = 0;
    for (let n = 1; n <= drafted; n++) again += acceptance ** (n - 1) * (1 - acceptance) * n;
    const row = (STEP[drafted + 1]! - STEP[1]!) / drafted;
    return (tokens * STEP[1]!) / (STEP[drafted + 1]! + drafted * DRAFT + again * row);
  });
  return Math.max(1, ...gains);
}

it.each([0.5, 0.7, 0.9])("is nine tenths of it where %d of the guesses are right", async (acceptance) => {
  const prompt = Array.from({ length: 64 }, (_, i) => tokenAt(i));
  const options = { draft: "mtp", temperature: 0, maxTokens: 600, ignoreEos: true } as const;
  const stream = generate(new ScriptedDecoder(acceptance), tokenizer, prompt, options);
  let next = await stream.next();
  while (!next.done) next = await stream.next();
  const { decodeSeconds, generatedTokens } = next.value;
  const gain = ((generatedTokens - 1) * STEP[1]!) / (1000 * decodeSeconds);
  expect(gain / bound(acceptance)).toBeGreaterThan(0.9);
});
