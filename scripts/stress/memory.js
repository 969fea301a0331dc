/**
 * `npm run test:memory [-- --megabytes 16000 --limit 2000]`: quantizes a checkpoint of `--megabytes` MB, in shards, in a
 * process that may use `--limit` MB of memory more than idle Node (ulimit -d: all memory but mapped files). It is interrupted
 * after a third by SIGINT and continues in a second process; the program must be complete. The shards are sparse files, which
 * take no disk space.
 */
import { execFileSync, spawn } from "node:child_process";
import {
  closeSync,
  copyFileSync,
  existsSync,
  ftruncateSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const { values } = parseArgs({
  options: { megabytes: { type: "string", default: "16000" }, limit: { type: "string", default: "2000" } },
});
const bytes = 1e6 * Number(values.megabytes);
const limit = 1e6 * Number(values.limit);
const main = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));
/** With a tokenizer, quantizing sees what usually goes into matrices. */
const tokenizer = fileURLToPath(new URL("../../models/shakespeare/tokenizer.json", import.meta.url));

/** Hidden size and vocabulary grow with the model, as in Llama 3: 4096 and 128256 at 16 GB. */
const hidden = bytes > 4e9 ? 4096 : 1024;
const shape = { hidden, intermediate: 3.5 * hidden, vocabulary: Math.floor(31.3125 * hidden), heads: hidden / 128 };
const SHARDS = 4;

/** Names and shapes of a Llama of about `bytes` in bf16. */
function tensorsOf() {
  const { intermediate, vocabulary } = shape;
  const kv = hidden / 4;
  const layer = (/** @type {number} */ i) => [
    [`model.layers.${i}.input_layernorm.weight`, [hidden]],
    [`model.layers.${i}.self_attn.q_proj.weight`, [hidden, hidden]],
    [`model.layers.${i}.self_attn.k_proj.weight`, [kv, hidden]],
    [`model.layers.${i}.self_attn.v_proj.weight`, [kv, hidden]],
    [`model.layers.${i}.self_attn.o_proj.weight`, [hidden, hidden]],
    [`model.layers.${i}.post_attention_layernorm.weight`, [hidden]],
    [`model.layers.${i}.mlp.gate_proj.weight`, [intermediate, hidden]],
    [`model.layers.${i}.mlp.up_proj.weight`, [intermediate, hidden]],
    [`model.layers.${i}.mlp.down_proj.weight`, [hidden, intermediate]],
  ];
  const outer = 4 * vocabulary * hidden;
  const layers = Math.max(1, Math.round((bytes - outer) / (2 * (2.5 * hidden ** 2 + 3 * hidden * intermediate))));
  const whole = [
    ["model.embed_tokens.weight", [vocabulary, hidden]],
    ["model.norm.weight", [hidden]],
    ["lm_head.weight", [vocabulary, hidden]],
  ];
  return { layers, tensors: [...whole, ...Array.from({ length: layers }, (_, i) => layer(i)).flat()] };
}

/** @param {string} folder */
function writeCheckpoint(folder) {
  const { layers, tensors } = tensorsOf();
  const config = {
    architectures: ["LlamaForCausalLM"],
    hidden_size: hidden,
    intermediate_size: shape.intermediate,
    num_hidden_layers: layers,
    num_attention_heads: shape.heads,
    num_key_value_heads: shape.heads / 4,
    vocab_size: shape.vocabulary,
    max_position_embeddings: 8192,
    tie_word_embeddings: false,
  };
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  copyFileSync(tokenizer, join(folder, "tokenizer.json"));
  const map = {};
  let total = 0;
  for (let shard = 0; shard < SHARDS; shard++) {
    const file = `model-0000${shard + 1}-of-0000${SHARDS}.safetensors`;
    const header = {};
    let end = 0;
    for (const [name, size] of tensors.filter((_, i) => Math.floor((i * SHARDS) / tensors.length) === shard)) {
      const begin = end;
      end += 2 * size.reduce((product, length) => product * length, 1);
      header[name] = { dtype: "BF16", shape: size, data_offsets: [begin, end] };
      map[name] = file;
    }
    const json = Buffer.from(JSON.stringify(header));
    const prefix = Buffer.alloc(8);
    prefix.writeBigUInt64LE(BigInt(json.length));
    const handle = openSync(join(folder, file), "w");
    writeSync(handle, Buffer.concat([prefix, json]));
    ftruncateSync(handle, 8 + json.length + end);
    closeSync(handle);
    total += end;
  }
  writeFileSync(join(folder, "model.safetensors.index.json"), JSON.stringify({ weight_map: map }));
  return total;
}

/** Bytes of one line of /proc/<pid>/status; 0 where it lacks the line. */
function statusBytes(/** @type {string} */ status, /** @type {string} */ line) {
  return 1024 * Number(new RegExp(`${line}:\\s+(\\d+)`).exec(status)?.[1] ?? 0);
}

/** Memory that is not of files of a Node that does nothing: some 50 MB for Node 20, 590 for Node 26. */
const atRest = statusBytes(
  execFileSync(process.execPath, ["-p", 'fs.readFileSync("/proc/self/status", "utf8")'], { encoding: "utf8" }),
  "VmData",
);

/** Ends with the code, or the signal, and the peak of memory. @param {string[]} args @param {(child: any) => void} [watch] */
function lowbit(args, watch = () => {}) {
  const script = `ulimit -d ${Math.floor((atRest + limit) / 1024)} && exec "$0" "$@"`;
  const child = spawn("sh", ["-c", script, process.execPath, main, ...args], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  let peak = 0;
  const timer = setInterval(() => {
    peak = Math.max(peak, peakOf(child.pid));
    watch(child);
  }, 20);
  return new Promise((resolve) =>
    child.on("close", (code) => {
      clearInterval(timer);
      resolve({ code, peak });
    }),
  );
}

/** Most memory that a process had, in bytes. */
function peakOf(pid) {
  const file = `/proc/${pid}/status`;
  return existsSync(file) ? statusBytes(readFileSync(file, "utf8"), "VmHWM") : 0;
}

function check(condition, text) {
  if (!condition) throw new Error(text);
}

const folder = mkdtempSync(join(tmpdir(), "lowbit-memory-"));
try {
  const total = writeCheckpoint(folder);
  const output = join(folder, "model.pte");
  const note = `${output}.partial.json`;
  /** Names of what is unfinished. */
  const partial = () =>
    readdirSync(folder).filter((name) => name.startsWith("model.pte.") && name.endsWith(".partial"));
  const args = ["quantize", folder, "--qmode", "8da4w", "--group-size", "32", "--scale-dtype", "f16"];
  args.push("--embedding", "4,32", "-o", output);
  const start = performance.now();
  let isAsked = false;
  const first = await lowbit(args, (child) => {
    const [file] = partial();
    if (isAsked || !file || statSync(join(folder, file)).size < total / 12) return;
    isAsked = true;
    child.kill("SIGINT");
  });
  check(first.code === 130, `expected exit code 130 of the interrupted process but found ${first.code}`);
  check(!existsSync(output), "an interrupted process left a program that looks whole");
  const kept = JSON.parse(readFileSync(note, "utf8")).state.bytes;
  check(kept > 0, "nothing of the interrupted process was kept");
  const second = await lowbit(args);
  check(second.code === 0, `the process ended with code ${second.code}`);
  check(partial().length === 0 && !existsSync(note), "parts were left behind");
  const seconds = (performance.now() - start) / 1000;
  const verified = await lowbit(["inspect", output, "--verify"]);
  check(verified.code === 0, "the program is not whole");
  const mb = (/** @type {number} */ size) => `${Math.round(size / 1e6)} MB`;
  console.log(
    `${mb(total)} quantized in ${seconds.toFixed(1)} s with at most ${mb(Math.max(first.peak, second.peak))} resident of ` +
      `${mb(limit)} allowed; interrupted after ${mb(kept)} of ${mb(statSync(output).size)} and continued`,
  );
} finally {
  rmSync(folder, { recursive: true });
}
