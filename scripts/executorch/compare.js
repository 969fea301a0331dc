/** Runs programs here and in ExecuTorch's runtime and compares tokens, logits and text. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { loadProgram } from "../../dist/index.js";
import { root } from "../native-sources.js";
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

/** As `greedy` of run.py, and the text that our own generation gives. */
async function runHere({ file, prompt }) {
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
  return { ids, tokens: fed.slice(ids.length), logits, text };
}

/** |a - b| / |b| over all values. @param {Float32Array[]} rows @param {Float32Array} expected */
export function relativeError(rows, expected) {
  let difference = 0;
  let size = 0;
  let at = 0;
  for (const row of rows)
    for (const value of row) {
      difference += (value - expected[at]) ** 2;
      size += expected[at++] ** 2;
    }
  if (at !== expected.length) throw new Error(`${at} logits here but ${expected.length} there`);
  return Math.sqrt(difference / size);
}

/**
 * For each program what was found. `error` is that of logits along the tokens generated here.
 * @param {string} python
 * @param {string} library the operator library
 * @param {Awaited<ReturnType<typeof import("./programs.js").writePrograms>>} programs
 */
export async function comparePrograms(python, library, programs) {
  const ours = [];
  for (const program of programs) ours.push(await runHere(program));
  const [job, result] = ["job.json", "result.json"].map((name) => join(root, "build", "executorch", name));
  const described = programs.map((program, i) => ({ ...program, ids: ours[i].ids, count: COUNT }));
  writeFileSync(job, JSON.stringify({ library, programs: described }));
  run(python, [join(root, "scripts", "executorch", "run.py"), job, result]);
  const theirs = JSON.parse(readFileSync(result, "utf8"));
  return programs.map((program, i) => {
    const { buffer, byteOffset, length } = readFileSync(`${program.file}.logits`);
    const expected = new Float32Array(buffer.slice(byteOffset, byteOffset + length));
    const shown = (text) => (program.spaces ? text : text.replaceAll(/\s/g, ""));
    return {
      ...program,
      error: relativeError(ours[i].logits, expected),
      sameTokens: ours[i].tokens.join() === theirs[i].tokens.join(),
      sameText: shown(ours[i].text) === shown(theirs[i].text),
    };
  });
}
