/**
 * Writes src/formats/quantized/goldens/ from the checkpoints of ../shared/golden/models-2026/quantized, which the formats' own
 * libraries wrote or read (its README.md says which): of each its settings, the tensors of one module as a safetensors file,
 * and the first row of their values.
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../native/sources.js";

const source = join(root, "..", "shared", "golden", "models-2026", "quantized");
const MODULE = "model.layers.0.self_attn.q_proj";

/** The tensors of the module alone. @param {Buffer} file */
function moduleOf(file) {
  const length = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.toString("utf8", 8, 8 + length));
  const parts = Object.entries(header)
    .filter(([name]) => name.startsWith(`${MODULE}.`))
    .sort(([, a], [, b]) => a.data_offsets[0] - b.data_offsets[0]);
  let at = 0;
  const bytes = [];
  const entries = parts.map(
    ([
      name,
      {
        dtype,
        shape,
        data_offsets: [begin, end],
      },
    ]) => {
      bytes.push(file.subarray(8 + length + begin, 8 + length + end));
      at += end - begin;
      return [name, { dtype, shape, data_offsets: [at - (end - begin), at] }];
    },
  );
  const text = Buffer.from(JSON.stringify(Object.fromEntries(entries)));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([size, text, ...bytes]);
}

const target = join(root, "src", "formats", "quantized", "goldens");
mkdirSync(target, { recursive: true });
for (const name of readdirSync(source)) {
  const read = (/** @type {string} */ file) => readFileSync(join(source, name, file));
  const { quantization_config: settings } = JSON.parse(read("config.json").toString());
  const row = JSON.parse(read("golden.json").toString()).dequantized_first_row[`${MODULE}.weight`];
  const golden = {
    settings,
    file: moduleOf(read("model.safetensors")).toString("base64"),
    row: Buffer.from(Float32Array.from(row).buffer).toString("base64"),
  };
  writeFileSync(join(target, `${name}.json.golden`), `${JSON.stringify(golden, null, 1)}\n`);
}
