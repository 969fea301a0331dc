/** Code that V8 has compiled is kept and taken again; where it cannot be, the script runs all the same. */
import { readdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, expect, test } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { CompiledScript } from "./compiled-script.ts";

const root = await temporaryFolder();
let count = 0;
let folder = "";
beforeEach(() => {
  folder = join(root, `code-${++count}`);
});

function scriptOf(value: string): string {
  const path = join(root, "script.cjs");
  writeFileSync(
    path,
    `//${value}\n(function (require, address) { return { run: () => "${value}", address, require }; })`,
  );
  return path;
}

/** What the script returns, and whether its code was kept; keeps it. */
function run(path: string, use = "run") {
  const script = new CompiledScript(path, folder, use);
  const exports = script.run() as { run(): string; address: string; require: NodeJS.Require };
  const value = exports.run();
  script.keep();
  return { value, isKept: script.isKept, exports };
}

test("code is kept for each use and content", () => {
  expect(run(scriptOf("one"))).toMatchObject({ value: "one", isKept: false });
  const { value, isKept, exports } = run(scriptOf("one"));
  expect([value, isKept]).toEqual(["one", true]);
  expect(exports.address).toMatch(/^file:.*script\.cjs$/);
  expect(exports.require("node:path").join).toBe(join);
  expect(run(scriptOf("one"), "chat").isKept).toBe(false);
  expect(run(scriptOf("two"))).toMatchObject({ value: "two", isKept: false });
  expect(readdirSync(folder).map((name) => name.split("-").slice(0, 2))).toEqual([
    ["chat", "one"],
    ["run", "one"],
    ["run", "two"],
  ]);
});

test("damaged code is made anew", () => {
  run(scriptOf("good"));
  const [name] = readdirSync(folder);
  const good = readFileSync(join(folder, name!));
  for (const [i, bad] of [Buffer.alloc(0), good.subarray(0, good.length >> 1), Buffer.alloc(good.length)].entries()) {
    // V8 finds a script that this process has compiled by its text.
    const file = join(folder, name!.replace("good", `bad${i}`));
    writeFileSync(file, bad);
    expect(run(scriptOf(`bad${i}`))).toMatchObject({ value: `bad${i}`, isKept: false });
    expect(readFileSync(file).length).toBeGreaterThan(good.length >> 1);
  }
});

test("old code is made anew, and that of other scripts removed", () => {
  run(scriptOf("one"));
  run(scriptOf("two"));
  for (const name of readdirSync(folder)) utimesSync(join(folder, name), 1, 1);
  expect(run(scriptOf("one")).isKept).toBe(false);
  expect(readdirSync(folder).length).toBe(1);
});

test("a folder that cannot be made is no matter", () => {
  folder = join(scriptOf("one"), "code");
  expect(run(scriptOf("one"))).toMatchObject({ value: "one", isKept: false });
});
