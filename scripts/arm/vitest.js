/**
 * The part of vitest's interface that the conformance tests use, in plain JavaScript and one process: vitest itself needs
 * a bundler that is not there for emulated Arm. Matchers are vitest's own.
 */
import { format } from "node:util";
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

const skip = (name) => skipped.add(name);

/** Names with the items of a row in place of printf codes, as far as it matters to tell them apart. */
function each(register) {
  return (rows) => (name, body) => {
    for (const row of rows) {
      const items = Array.isArray(row) ? row : [row];
      register(format(name.replaceAll(/%[a-z]/g, "%s"), ...items), () => body(...items));
    }
  };
}

describe.each = each(describe);
it.each = each(it);
describe.skipIf = (condition) => (condition ? skip : describe);
it.skipIf = (condition) => (condition ? skip : it);

/**
 * Imports test files, then runs their tests, but not groups whose names match `leftOut`. Prints failures and what the
 * tests skip; returns the number of failures.
 */
export async function runFiles(urls, leftOut) {
  omitted = leftOut;
  for (const url of urls) {
    path = [url.split("/").at(-1)];
    await import(url);
  }
  let failures = 0;
  for (const { name, body } of tests) {
    try {
      await body();
    } catch (error) {
      failures++;
      console.log(`FAILED ${name}\n${error.stack}`);
    }
  }
  for (const name of skipped) console.log(name);
  console.log(`${tests.length - failures} of ${tests.length} tests passed`);
  return failures;
}
