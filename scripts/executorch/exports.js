/** Tests that programs of ExecuTorch's own exporter, made during the test, give the logits of its runtime here. */
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { loadMethods } from "../../dist/index.js";
import { root } from "../native/sources.js";
import { relativeError } from "./compare.js";
import { exporters, pythonOver, pythonWith, releases, run } from "./environment.js";

const ints = (values, shape) => ({ dtype: "i64", shape, data: BigInt64Array.from(values, BigInt) });

/** The wrong message for a program with delegates, or "was loaded"; null if it is refused as it must be. */
async function delegateRefusal(file) {
  try {
    await loadMethods(file);
    return "was loaded";
  } catch ({ message }) {
    return /XnnpackBackend.*export without/.test(message) ? null : message;
  }
}

/**
 * Exports tested by `npm run test:executorch -- --short`: ExecuTorch's attention with a quantized embedding, and a quantized
 * cache.
 */
const short = ["custom-sdpa", "quantized-cache"];

/**
 * @param {string} python
 * @param {string} folder
 * @param {boolean} isShort fewer programs, and none that is refused
 * @returns {Promise<{ errors: Record<string, number>, refusal: string | null }>} relative errors of logits by program,
 *   and what is wrong with the refusal of one that has delegates
 */
export async function compareExports(python, folder, isShort) {
  mkdirSync(folder, { recursive: true });
  run(python, [join(root, "test", "executorch-exports", "make.py"), folder, ...(isShort ? short : [])]);
  const { chunks, logits } = JSON.parse(readFileSync(join(folder, "logits.json.golden"), "utf8"));
  const errors = {};
  for (const [name, expected] of Object.entries(logits)) {
    const program = await loadMethods(join(folder, `${name}.pte.golden`));
    const session = program.createSession();
    const rows = [];
    let position = 0;
    for (const tokens of chunks) {
      const [output] = await session.run("forward", [ints(tokens, [1, tokens.length]), ints([position], [1])]);
      rows.push(output.data.slice());
      position += tokens.length;
    }
    await program.dispose();
    errors[name] = relativeError(rows, expected);
  }
  return { errors, refusal: isShort ? null : await delegateRefusal(join(folder, "xnnpack.pte.golden")) };
}

/** Programs of make-others.py: those of the release's own exporter, and of others. */
const others = {
  executorch: ["off-graph-cache", "several-methods"],
  "optimum-executorch": ["optimum", "optimum-custom-sdpa"],
  transformers: ["transformers"],
};

const typed = ({ dtype, shape, data }) =>
  dtype === "i64" ? ints(data, shape) : { dtype, shape, data: Float32Array.from(data) };

/** Relative error of the results of a program's calls, in order, in one session. */
async function callsError(folder, name) {
  const program = await loadMethods(join(folder, `${name}.pte.golden`));
  const session = program.createSession();
  const [found, expected] = [[], []];
  for (const { method, inputs, output } of JSON.parse(readFileSync(join(folder, `${name}.json.golden`), "utf8"))) {
    const [result] = await session.run(method, inputs.map(typed));
    found.push(result.data.slice());
    expected.push(output.data);
  }
  await program.dispose();
  return relativeError(found, expected);
}

/**
 * Programs of several methods, of a cache off the graph and of other exporters, made with the newest release.
 * @param {string} folder
 * @returns {Promise<Record<string, { by: string, error: number }>>} relative errors of their results, by program
 */
export async function compareOthers(folder) {
  mkdirSync(folder, { recursive: true });
  const [newest] = Object.keys(releases);
  const found = {};
  for (const [exporter, names] of Object.entries(others)) {
    const own = exporter === "executorch";
    const { python, variables } = own ? { python: pythonWith(newest), variables: {} } : pythonOver(exporters[exporter]);
    run(python, [join(root, "test", "executorch-exports", "make-others.py"), folder, ...names], variables);
    const by = own ? `executorch ${newest}` : exporters[exporter].join(" with ").replaceAll("==", " ");
    for (const name of names) found[name] = { by, error: await callsError(folder, name) };
  }
  return found;
}
