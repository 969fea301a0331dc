/** Compares what ExecuTorch finds in our programs with the output of `lowbit inspect`. */
import { join } from "node:path";
import { inspectProgram } from "../../dist/index.js";
import { root } from "../native/sources.js";
import { run } from "./environment.js";

const scalarTypes = { LONG: "i64", FLOAT: "f32" };
const shapesOf = (list) => list.map(({ sizes, dtype }) => ({ sizes, dtype: scalarTypes[dtype] ?? dtype }));

/** What inspection and ExecuTorch say of one file, in one form. */
async function views({ file, methods }) {
  const ours = await inspectProgram(file);
  const forward = methods.find(({ name }) => name === "forward");
  const method = ours.methods.find(({ name }) => name === "forward");
  return {
    methods: [
      methods.map(({ name }) => name).sort(),
      [...ours.methods.map(({ name }) => name), ...Object.keys(ours.metadata)].sort(),
    ],
    inputs: [shapesOf(forward.inputs), shapesOf(method.inputs)],
    outputs: [shapesOf(forward.outputs), shapesOf(method.outputs)],
    operators: [[...forward.operators].sort(), method.operators.map(({ name }) => name).sort()],
  };
}

/** Lists disagreements about files, and files that ExecuTorch's verifier refuses. @param {string} python @param {string[]} files */
export async function verifyPrograms(python, files) {
  const problems = [];
  for (const seen of JSON.parse(run(python, [join(root, "scripts", "executorch", "verify.py"), ...files]))) {
    if (!seen.verified) {
      problems.push(`${seen.file}: ${seen.error}`);
      continue;
    }
    for (const [what, [theirs, ours]] of Object.entries(await views(seen)))
      if (JSON.stringify(theirs) !== JSON.stringify(ours))
        problems.push(
          `${seen.file}: ${what}: ExecuTorch sees ${JSON.stringify(theirs)}, lowbit ${JSON.stringify(ours)}`,
        );
  }
  return problems;
}
