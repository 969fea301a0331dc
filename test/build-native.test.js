/** What `npm install` of the repository does where no native addon can be built: it says why and succeeds. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, it } from "vitest";
import { sourcesFingerprint } from "../scripts/native-sources.js";

const script = fileURLToPath(new URL("../scripts/build-native.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "lowbit-build-"));
const out = join(folder, "lowbit.node");
afterAll(() => rmSync(folder, { recursive: true }));

/** The script without any program to find on the PATH. @param {string[]} args */
function build(args) {
  const env = { ...process.env, PATH: folder, CXX: "" };
  return spawnSync(process.execPath, [script, `--out=${out}`, ...args], { env, encoding: "utf8" });
}

it.each([
  ["no compiler", [], "no C++ compiler was found"],
  ["a processor without kernels", ["--target=linux-s390x"], "there are no kernels for s390x"],
])("%s: the package works without the addon", (_, args, reason) => {
  const { status, stdout } = build(args);
  expect(stdout).toBe(`lowbit: the native addon was not built and slower kernels will serve: ${reason}\n`);
  expect(status).toBe(0);
  expect(existsSync(out)).toBe(false);
});

it("--strict makes it an error", () => {
  expect(build(["--strict"]).status).toBe(1);
});

it("an addon is up to date when it was built from these very sources, whenever that was", () => {
  const later = Date.now() / 1000 + 3600;
  writeFileSync(out, "of these sources");
  writeFileSync(`${out}.sources`, sourcesFingerprint());
  utimesSync(out, 0, 0);
  expect(build(["--strict"])).toMatchObject({ status: 0, stdout: "" });
  expect(readFileSync(out, "utf8")).toBe("of these sources");
  writeFileSync(`${out}.sources`, "of others");
  utimesSync(out, later, later);
  expect(build(["--strict"]).status).toBe(1);
  expect(existsSync(out)).toBe(false);
});
