/** Runs programs here and in ExecuTorch's runtime and compares tokens, logits and text. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { loadProgram } from "../../dist/index.js";
import { root } from "../native/sources.js";
import { run } from "./environment.js";

/** Tokens that are generated. */
const COUNT = 60;

const ints = (values, shape) => ({ dtype: "i64", shape, data: BigInt64Array.from(values, BigInt) });

/** Index of the largest. @param {Float32Array} values */
function argmax(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

/**
 * Greedy tokens with the logits of each token fed, and the text that our own generation gives.
 * @param {{ file: string, prompt: string }} program
 */
export async function runHere({ file, prompt }) {
  const llm = await loadProgram(file);
  const ids = llm.tokenizer.encode(prompt);
  const session = llm.program.createSession();
  const fed = [...ids];
  const logits = [];
  for (let position = 0; position < ids.length + COUNT - 1; position++) {
    const [output] = await session.run("forward", [ints([fed[position]], [1, 1]), ints([position], [1])]);
    logits.push(output.data.slice());
    if (fed.length === position + 1) fed.push(argmax(logits.at(-1)));
  }
  let text = "";
  for await (const piece of llm.generate(prompt, { maxTokens: COUNT, temperature: 0, ignoreEos: true })) text += piece;
  await llm.dispose();
  return { fed, prompt: ids.length, logits, text };
}

/**
 * Runs programs in ExecuTorch along given tokens; for each, the likeliest token after each, a row of outputs a token,
 * and the text of its runner. The operator library is loaded after those that are `stock`, which do without.
 * @param {string} python
 * @param {string} library the operator library
 * @param {object[]} programs in any order
 * @param {Record<string, string>} [variables] of the environment
 */
export function runThere(python, library, programs, variables) {
  const [job, result] = ["job.json", "result.json"].map((name) => join(root, "build", "executorch", name));
  writeFileSync(job, JSON.stringify({ library, programs }));
  run(python, [join(root, "scripts", "executorch", "run.py"), job, result], variables);
  return JSON.parse(readFileSync(result, "utf8")).map((found, i) => {
    const { buffer, byteOffset, length } = readFileSync(`${programs[i].file}.outputs`);
    const values = new Float32Array(buffer.slice(byteOffset, byteOffset + length));
    const width = values.length / programs[i].fed.length;
    return { ...found, rows: programs[i].fed.map((_, t) => values.subarray(t * width, (t + 1) * width)) };
  });
}

/** |a - b| / |b| over all values. @param {Float32Array[]} rows @param {Float32Array[]} expected */
export function relativeError(rows, expected) {
  let difference = 0;
  let size = 0;
  for (const [t, row] of rows.entries()) {
    if (row.length !== expected[t].length) throw new Error(`${row.length} values here but ${expected[t].length} there`);
    for (const [i, value] of row.entries()) {
      difference += (value - expected[t][i]) ** 2;
      size += expected[t][i] ** 2;
    }
  }
  return Math.sqrt(difference / size);
}

/**
 * For each program what was found, both runtimes along the tokens generated here.
 * @param {string} python
 * @param {string} library the operator library
 * @param {Awaited<ReturnType<typeof import("./programs.js").writePrograms>>} programs
 * @param {Awaited<ReturnType<typeof runHere>>[]} ours what they gave here
 */
export function comparePrograms(python, library, programs, ours) {
  const described = programs.map((program, i) => ({ ...program, fed: ours[i].fed.slice(0, -1), count: COUNT }));
  const theirs = runThere(python, library, described);
  return described.map((program, i) => {
    const { fed, prompt, logits, text } = ours[i];
    const { best, rows, text: theirText } = theirs[i];
    const shown = (text) => (program.spaces ? text : text.replaceAll(/\s/g, ""));
    return {
      ...program,
      error: relativeError(logits, rows),
      sameTokens: best.slice(prompt - 1).join() === fed.slice(prompt).join(),
      sameText: shown(text) === shown(theirText),
    };
  });
}
