/**
 * Counts how often 8-bit activations are rounded to another integer in ExecuTorch than here, and how much that changes logits.
 * Also compares ExecuTorch with itself, with its matrix library summing in another order.
 */
import { join } from "node:path";
import { methodSources } from "../../dist/api/compile-model.js";
import { compile } from "../../dist/compile/compile.js";
import { executorchTarget } from "../../dist/executorch/compile/lowering.js";
import { loadCheckpoint, loadMethods } from "../../dist/index.js";
import { hostCpu } from "../../dist/kernels/cpu.js";
import { quantizeActivations } from "../../dist/kernels/families/linear/activations.js";
import { saveProgram } from "../../dist/program/save.js";
import { operators } from "../../dist/registry/operators.js";
import { relativeError, runThere } from "./compare.js";
import { schemes } from "./programs.js";

const ints = (values, shape) => ({ dtype: "i64", shape, data: BigInt64Array.from(values, BigInt) });

/** A method with what its layers of 8-bit activations read as further outputs. */
function observed(source) {
  return {
    ...source,
    build(builder, inputs) {
      const read = [];
      const watched = {
        cpu: builder.cpu,
        constant: (constant) => builder.constant(constant),
        state: (name, spec) => builder.state(name, spec),
        spec: (value) => builder.spec(value),
        call(operator, ...args) {
          if (/^torchao::_linear_8bit_act/.test(operator) && !read.includes(args[0])) read.push(args[0]);
          return builder.call(operator, ...args);
        },
      };
      return [...source.build(watched, inputs), ...read];
    },
  };
}

/** Writes a program with observed layers for ExecuTorch. */
async function writeObserved({ folder: checkpoint, scheme, name }, file, folder) {
  const model = await loadCheckpoint(checkpoint);
  await schemes[scheme].apply(model, name, folder);
  const { sources } = methodSources(model, { target: "executorch" });
  const program = compile(sources.map(observed), { registry: operators, cpu: hostCpu(), target: executorchTarget });
  await saveProgram(program, file);
  await model.close();
}

/** Rows of all outputs along tokens, and the number of values of each output. */
async function runObserved(file, fed) {
  const program = await loadMethods(file);
  const session = program.createSession();
  const rows = [];
  let widths = [];
  for (const [position, token] of fed.entries()) {
    const outputs = await session.run("forward", [ints([token], [1, 1]), ints([position], [1])]);
    widths = outputs.map(({ data }) => data.length);
    rows.push(Float32Array.from(outputs.flatMap(({ data }) => [...data])));
  }
  await program.dispose();
  return { rows, widths };
}

/** The integers of a token's activations, layer by layer. */
function integersOf(row, widths) {
  const [logits, ...layers] = widths;
  const all = [];
  let start = logits;
  for (const k of layers) {
    const target = { q: new Int8Array(k), scales: new Float32Array(1), zeros: new Int32Array(1) };
    quantizeActivations(row.subarray(start, start + k), 1, k, target);
    all.push(...target.q);
    start += k;
  }
  return all;
}

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

/** Differences between two runs of one program. */
function differences(rows, others, widths) {
  const flips = rows.map((row, t) => {
    const [a, b] = [integersOf(row, widths), integersOf(others[t], widths)];
    return a.filter((value, i) => value !== b[i]).length;
  });
  const errors = rows.map((row, t) => relativeError([row.subarray(0, widths[0])], [others[t].subarray(0, widths[0])]));
  const first = flips.findIndex((count) => count > 0);
  const before = first < 0 ? errors : errors.slice(0, first);
  return {
    integers: widths.slice(1).reduce((sum, width) => sum + width, 0),
    tokens: rows.length,
    first,
    errorBefore: before.length === 0 ? null : Math.max(...before),
    flips: [median(flips), Math.max(...flips)],
    errors: [median(errors), Math.max(...errors)],
  };
}

/** Whose attention ExecuTorch runs, and in which order its matrix library (MKL) sums: by default, that of the CPU. */
const stock = { LOWBIT_STOCK_ATTENTION: "1" };
const others = { ...stock, MKL_CBWR: "AVX2" };

/**
 * For each program that rounds activations: ours against ExecuTorch, with our attention and its own, and ExecuTorch
 * against itself with the sums of MKL in the order that they have on CPUs without AVX-512.
 * @param {string} python
 * @param {string} library
 * @param {object[]} results of `comparePrograms`
 * @param {string} folder
 */
export async function compareRoundings(python, library, results, folder) {
  const programs = [];
  for (const result of results.filter(({ scheme }) => scheme.startsWith("8da"))) {
    const { name, scheme, fed } = result;
    const file = join(folder, `observed-${programs.length}.pte`);
    await writeObserved(result, file, folder);
    programs.push({ name, scheme, file, fed, here: await runObserved(file, fed) });
  }
  const jobs = programs.map(({ file, fed }) => ({ file, fed }));
  const [fused, own, otherOrder] = [{}, stock, others].map((variables) => runThere(python, library, jobs, variables));
  return programs.flatMap(({ name, scheme, here: { rows, widths } }, i) => {
    const pairs = {
      "lowbit, ExecuTorch with our attention": [rows, fused[i].rows],
      "lowbit, ExecuTorch": [rows, own[i].rows],
      "ExecuTorch, itself on AVX2": [otherOrder[i].rows, own[i].rows],
    };
    return Object.entries(pairs).map(([pair, [a, b]]) => ({ name, scheme, pair, ...differences(a, b, widths) }));
  });
}
