/** What `npm ci --omit=dev` in a checkout does, where there is no compiler: it says so, and fails only without dist/. */
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { root } from "../scripts/native/sources.js";

const folder = mkdtempSync(join(tmpdir(), "lowbit-prepare-"));
afterAll(() => rmSync(folder, { recursive: true }));

it("builds nothing without the development dependencies", () => {
  const { scripts } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  for (const name of ["scripts", "dist"]) mkdirSync(join(folder, name));
  copyFileSync(join(root, "scripts", "prepare.js"), join(folder, "scripts", "prepare.js"));
  const prepare = () => spawnSync(scripts.prepare, { cwd: folder, encoding: "utf8", shell: true });
  expect(prepare()).toMatchObject({
    status: 1,
    stdout: "",
    stderr: expect.stringMatching(/^lowbit: dist\/ is not there and .*--omit=dev.*\n$/),
  });
  writeFileSync(join(folder, "dist", "index.js"), "");
  expect(prepare()).toMatchObject({ status: 0, stdout: expect.stringContaining("nothing is built"), stderr: "" });
});
