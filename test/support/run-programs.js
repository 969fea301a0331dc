/**
 * Runs programs in a process of their own, which may crash: `node run-programs.js <folder>` prints a line of JSON for each
 * file of the folder, with the results of `forward` or the error.
 */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { loadMethods } from "../../dist/index.js";

const [folder] = process.argv.slice(2);
for (const name of readdirSync(folder).sort()) {
  process.stdout.write(`${JSON.stringify({ name })}\n`);
  const result = { name, milliseconds: performance.now() };
  let program;
  try {
    program = await loadMethods(join(folder, name), { threads: 2 });
    const session = program.createSession();
    const x = { dtype: "f32", shape: [1, 2, 64], data: Float32Array.from({ length: 128 }, (_, i) => Math.sin(i)) };
    const position = { dtype: "i64", shape: [1], data: BigInt64Array.of(3n) };
    // Twice: what the first run writes, the second must not trip over.
    for (let run = 0; run < 2; run++)
      result.outputs = (await session.run("forward", [x, position])).map(({ data }) => Array.from(data, Number));
  } catch (error) {
    result.error = { class: error.constructor.name, message: error.message };
  } finally {
    await program?.dispose();
  }
  result.milliseconds = performance.now() - result.milliseconds;
  process.stdout.write(`${JSON.stringify(result)}\n`);
}
