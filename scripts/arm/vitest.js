/**
 * The part of vitest's interface that the conformance tests use, in plain JavaScript and one thread: vitest itself runs
 * neither on emulated Arm nor in a browser. Matchers are vitest's own.
 */
import { JestAsymmetricMatchers, JestChaiExpect, JestExtend } from "@vitest/expect";
import * as chai from "chai";

chai.use(JestExtend);
chai.use(JestChaiExpect);
chai.use(JestAsymmetricMatchers);

const tests = [];
const skipped = new Set();
let path = [];
let omitted = /^$/;

export const expect = (value, message) => chai.expect(value, message);

export function describe(name, body) {
  if (omitted.test(name)) return;
  path.push(name);
  body();
  path.pop();
}

export function it(name, body) {
  tests.push({ name: [...path, name].join(" > "), body });
}

const skip = (name) => omitted.test(name) || skipped.add(name);
skip.each = () => skip;

/** Names with the items of a row in place of printf codes, as far as it matters to tell them apart. */
function each(register) {
  return (rows) => (name, body) => {
    for (const row of rows) {
      const items = Array.isArray(row) ? row : [row];
      let next = 0;
      register(
        name.replaceAll(/%[a-z]/g, () => String(items[next++])),
        () => body(...items),
      );
    }
  };
}

describe.skip = skip;
describe.each = each(describe);
it.each = each(it);
describe.skipIf = (condition) => (condition ? skip : describe);
it.skipIf = (condition) => (condition ? skip : it);

/**
 * Imports test files, then runs their tests, but not groups whose names match `leftOut`. Tells of failures, of what the
 * tests skip and of how many passed.
 * @param {Readonly<Record<string, () => Promise<unknown>>>} files imports by name
 * @param {RegExp} leftOut
 * @param {(name: string) => void} [onTest] called before each test: who is ended by a signal has told which it was
 * @returns {Promise<{ failed: number, passed: number, log: string[] }>}
 */
export async function runFiles(files, leftOut, onTest = () => {}) {
  omitted = leftOut;
  for (const [name, load] of Object.entries(files)) {
    path = [name];
    await load();
  }
  const log = [];
  let failed = 0;
  for (const { name, body } of tests) {
    onTest(name);
    try {
      await body();
    } catch (error) {
      failed++;
      log.push(`FAILED ${name}\n${error.stack}`);
    }
  }
  const passed = tests.length - failed;
  return { failed, passed, log: [...log, ...skipped, `${passed} of ${tests.length} tests passed`] };
}
