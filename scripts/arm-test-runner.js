/**
 * Runs vitest test files in plain Node (22.18 or newer, which reads TypeScript), one process, no workers and no bundler:
 * what emulated Arm can do. It knows the part of vitest's interface that the named files use.
 *
 *     node scripts/arm-test-runner.js src/kernels/conformance.test.ts …
 */
import { registerHooks } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { format } from "node:util";
import { JestAsymmetricMatchers, JestChaiExpect, JestExtend } from "@vitest/expect";
import * as chai from "chai";

chai.use(JestExtend);
chai.use(JestChaiExpect);
chai.use(JestAsymmetricMatchers);

const tests = [];
let path = [];
const skipped = new Set();

function describe(name, body) {
  if (/_reference$/.test(name)) return;
  path.push(name);
  body();
  path.pop();
}

function it(name, body) {
  tests.push({ name: [...path, name].join(" > "), body });
}

/** Names as vitest formats them: printf codes over the items of a row. */
function each(register) {
  return (rows) => (name, body) => {
    for (const row of rows) {
      const items = Array.isArray(row) ? row : [row];
      register(format(name.replaceAll(/%[ifo]/g, "%s"), ...items).split("\n")[0], () => body(...items));
    }
  };
}

describe.each = each(describe);
it.each = each(it);
describe.skipIf = (condition) => (condition ? (name) => skipped.add(name) : describe);
it.skipIf = (condition) => (condition ? (name) => skipped.add(name) : it);

globalThis.vitestParts = { describe, it, test: it, expect: (value, message) => chai.expect(value, message) };
const source = "export const { describe, it, test, expect } = globalThis.vitestParts;";
registerHooks({
  resolve: (specifier, context, next) =>
    specifier === "vitest" ? { url: `data:text/javascript,${source}`, shortCircuit: true } : next(specifier, context),
});

for (const file of process.argv.slice(2)) {
  path = [file];
  await import(pathToFileURL(resolve(file)).href);
}
let failures = 0;
for (const { name, body } of tests) {
  const start = performance.now();
  try {
    await body();
  } catch (error) {
    failures++;
    console.log(`FAILED ${name}\n${error.stack}`);
  }
  const seconds = (performance.now() - start) / 1000;
  if (process.env.SLOW && seconds > 3) console.log(`${seconds.toFixed(1)} s ${name}`);
}
for (const name of skipped) console.log(`not run: ${name}`);
console.log(`${tests.length - failures} of ${tests.length} tests passed`);
process.exit(failures > 0 ? 1 : 0);
