/** Gemma 4 with experts in GGUF, with gates and ups of experts as two stacks and, as llama.cpp's converter writes them, as one. */
import { join } from "node:path";
import { expect, it } from "vitest";
import { readGgufHeader } from "../src/formats/gguf/header.ts";
import { type GgufEntry, writeGguf } from "../src/formats/gguf/writer.ts";
import { EagerModel, loadCheckpoint, saveGguf } from "../src/index.ts";
import { openFile } from "../src/node-file.ts";
import { temporaryFolder } from "./support/folders.ts";
import { writeDecoderCheckpoint } from "./support/hybrid-checkpoint.ts";
import { expectSame } from "./support/same.ts";
import { tinyConfig } from "./support/tiny-checkpoint.ts";

const folder = await temporaryFolder();
const ids = Array.from({ length: 24 }, (_, i) => (i * 37) % 250);
const config = {
  ...tinyConfig,
  ...{ architectures: ["Gemma4ForCausalLM"], num_hidden_layers: 3, tie_word_embeddings: true, head_dim: 16 },
  layer_types: ["sliding_attention", "full_attention", "full_attention"],
  ...{ global_head_dim: 32, sliding_window: 8, attention_k_eq_v: true, hidden_size_per_layer_input: 0 },
  ...{ enable_moe_block: true, num_experts: 4, top_k_experts: 2, moe_intermediate_size: 32 },
};

async function logitsOf(path: string): Promise<Float32Array> {
  const model = await loadCheckpoint(path);
  expect(model.unreadTensors).toEqual([]);
  const eager = await EagerModel.load(model, { logits: "all" });
  const logits = eager.forward(ids, 0).data as Float32Array;
  await model.close();
  return logits;
}

/** The same file with one stack for gates and ups, an expert's gate before its up. */
async function joinStacks(path: string, target: string): Promise<void> {
  const source = await openFile(path);
  const { metadata, tensors, dataStart } = await readGgufHeader(source);
  const typed = (value: unknown): GgufEntry["type"] => {
    if (typeof value === "string") return "string";
    if (typeof value === "boolean") return "bool";
    return Number.isInteger(value) ? "i32" : "f32";
  };
  const entries = [...metadata].map(([key, value]): [string, GgufEntry] => {
    const first = Array.isArray(value) ? value[0] : value;
    return [key, { type: typed(first), value: value as GgufEntry["value"] }];
  });
  const bytesOf = ({ shape, offset }: (typeof tensors)[number]) =>
    source.read(dataStart + offset, 4 * shape.reduce((product, size) => product * size, 1));
  const written = await Promise.all(
    tensors.flatMap((tensor) => {
      if (tensor.name.includes("ffn_up_exps")) return [];
      const isGate = tensor.name.includes("ffn_gate_exps");
      const up = isGate && tensors.find(({ name }) => name === tensor.name.replace("gate", "up"))!;
      const [experts = 1, rows = 1, columns = 1] = tensor.shape;
      return [
        (async () => {
          const parts = up ? [await bytesOf(tensor), await bytesOf(up)] : [await bytesOf(tensor)];
          const size = parts[0]!.length / experts;
          const data = up
            ? Array.from({ length: experts }, (_, e) =>
                parts.map((part) => part.subarray(e * size, (e + 1) * size)),
              ).flat()
            : parts;
          return {
            ...tensor,
            ...(up && { name: tensor.name.replace("gate", "gate_up"), shape: [experts, 2 * rows, columns] }),
            byteLength: data.reduce((sum, { length }) => sum + length, 0),
            async *parts() {
              yield* data;
            },
          };
        })(),
      ];
    }),
  );
  await writeGguf(target, new Map(entries), written);
  await source.close();
}

it("is read as its checkpoint, bit for bit, with gates and ups of experts in two stacks or in one", async () => {
  const source = join(folder, "checkpoint");
  await writeDecoderCheckpoint(source, config);
  const model = await loadCheckpoint(source);
  const [path, joined] = [join(folder, "two.gguf"), join(folder, "one.gguf")];
  await saveGguf(model, path);
  await model.close();
  const expected = await logitsOf(source);
  expectSame(await logitsOf(path), expected);
  await joinStacks(path, joined);
  expectSame(await logitsOf(joined), expected);
});
