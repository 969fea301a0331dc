/** Modules of quantized checkpoints, which the formats' own libraries made, as files that can be changed and damaged. */
import { readdirSync, readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Random } from "./random.ts";

/** A module of a checkpoint: its settings, a safetensors file and a row of float32 in base64. */
export interface QuantizedModule {
  readonly settings: Record<string, unknown>;
  readonly file: string;
  readonly row: string;
}

/** The module's name, which all its tensors begin with. */
export const MODULE = "model.layers.0.self_attn.q_proj";

const goldens = new URL("../../src/formats/quantized/goldens/", import.meta.url);
const ENDING = ".json.golden";

/** Those that the project has, by the names of their checkpoints. */
export function storedModules(): Record<string, QuantizedModule> {
  const files = readdirSync(goldens).filter((file) => file.endsWith(ENDING));
  const modules = files
    .sort()
    .map((file) => [file.slice(0, -ENDING.length), JSON.parse(readFileSync(new URL(file, goldens), "utf8"))] as const);
  return Object.fromEntries(modules);
}

const bytesOf = (text: string) => new Uint8Array(Buffer.from(text, "base64"));

export interface Entry {
  dtype: string;
  shape: number[];
  data: Uint8Array;
}

/** The tensors of a safetensors file, to be changed. */
function parse(file: Uint8Array): Map<string, Entry> {
  const view = new DataView(file.buffer, file.byteOffset);
  const length = Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, 8 + length))) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  return new Map(
    Object.entries(header).map(
      ([
        name,
        {
          dtype,
          shape,
          data_offsets: [begin, end],
        },
      ]) => [name.slice(MODULE.length + 1), { dtype, shape, data: file.slice(8 + length + begin, 8 + length + end) }],
    ),
  );
}

/** A module as it can be changed. */
export function unpack({ file, settings, row }: QuantizedModule) {
  return {
    tensors: parse(bytesOf(file)),
    settings: structuredClone(settings),
    row: new Float32Array(bytesOf(row).buffer),
  };
}

/** Writes a checkpoint of the module alone to a new folder at `path`. */
export async function writeModule(path: string, tensors: Map<string, Entry>, settings: object): Promise<void> {
  await mkdir(path, { recursive: true });
  let at = 0;
  const header = Object.fromEntries(
    [...tensors].map(([name, { dtype, shape, data }]) => {
      at += data.length;
      return [`${MODULE}.${name}`, { dtype, shape, data_offsets: [at - data.length, at] }];
    }),
  );
  const text = Buffer.from(JSON.stringify(header));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(text.length));
  await writeFile(join(path, "config.json"), JSON.stringify({ quantization_config: settings }));
  await writeFile(
    join(path, "model.safetensors"),
    Buffer.concat([size, text, ...[...tensors.values()].map(({ data }) => data)]),
  );
}

const odd: readonly unknown[] = [null, -1, 0, 3, 7, 128, 2 ** 31, 1e300, "x", "gptq", true, [], [0, 0], {}, { a: {} }];

/** Another field, another shape, other bytes, or a tensor less. */
export function damage(tensors: Map<string, Entry>, settings: Record<string, unknown>, random: Random): void {
  const names = [...tensors.keys()];
  const name = random.pick(names);
  const entry = tensors.get(name);
  switch (random.integer(0, 4)) {
    case 0:
      settings[random.pick(Object.keys(settings).filter((field) => field !== "quant_method"))] = random.pick(odd);
      break;
    case 1:
      tensors.delete(name);
      break;
    case 2: {
      if (!entry) break;
      const count = entry.shape.reduce((a, b) => a * b, 1);
      entry.shape = random.pick([[count], [1, count], [count, 1], [], [2, count / 2]]).filter(Number.isInteger);
      if (entry.shape.reduce((a, b) => a * b, 1) !== count) entry.shape = [count];
      break;
    }
    case 3:
      for (let i = 0; i < 8 && entry; i++)
        entry.data[random.integer(0, entry.data.length - 1)] = random.integer(0, 255);
      break;
    default:
      if (entry) entry.data.fill(random.integer(0, 255));
  }
}
