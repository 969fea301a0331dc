/** What `npm install` of the repository does where no native addon can be built: it says why and succeeds. */
import { spawnSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, it } from "vitest";
import { root, sourcesFingerprint } from "../scripts/native-sources.js";

const script = fileURLToPath(new URL("../scripts/build-native.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "lowbit-build-"));
const machine = `${process.platform}-${process.arch}`;
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
  writeFileSync(`${out}.sources`, sourcesFingerprint(machine));
  utimesSync(out, 0, 0);
  expect(build(["--strict"])).toMatchObject({ status: 0, stdout: "" });
  expect(readFileSync(out, "utf8")).toBe("of these sources");
  writeFileSync(`${out}.sources`, "of others");
  utimesSync(out, later, later);
  expect(build(["--strict"])).toMatchObject({
    status: 1,
    stdout: "lowbit: the native addon was not built; the one built before stays: no C++ compiler was found\n",
  });
  expect(readFileSync(out, "utf8")).toBe("of these sources");
  writeFileSync(out, "of these sources, for another machine that shares the folder");
  writeFileSync(`${out}.sources`, sourcesFingerprint("linux-s390x"));
  expect(build(["--strict"]).status).toBe(1);
});

/** A checkout of one source, at a path that needs care, with a compiler that makes the fault named. */
function checkout() {
  const copy = join(folder, "a checkout é漢");
  const compiler = join(folder, "compiler.js");
  mkdirSync(join(copy, "scripts"), { recursive: true });
  for (const name of ["build-native.js", "native-sources.js"])
    copyFileSync(join(root, "scripts", name), join(copy, "scripts", name));
  for (const name of ["generic", "x86", "arm", "aqlm/x86", "aqlm/arm"])
    mkdirSync(join(copy, "native", name), { recursive: true });
  writeFileSync(join(copy, "native", "addon.cc"), "");
  for (const name of ["src", "node_modules"]) symlinkSync(join(root, name), join(copy, name), "junction");
  writeFileSync(join(copy, "package.json"), '{ "type": "module" }');
  writeFileSync(
    compiler,
    `const [fault, ...args] = process.argv.slice(2);
    if (args.includes("--version")) process.exit(0);
    const link = !args.includes("-c");
    require("node:fs").writeFileSync(args[args.indexOf("-o") + 1], fault === "none" ? "whole" : "half");
    if (link && fault === "killed") process.kill(process.pid, "SIGKILL");
    if (link && fault === "interrupted") process.kill(process.ppid, "SIGKILL");
    if (fault === "silent") process.exit(3);`,
  );
  const built = join(copy, "build");
  const run = (/** @type {string} */ fault) => {
    const env = { ...process.env, CXX: `${process.execPath} ${compiler} ${fault}` };
    return spawnSync(process.execPath, [join(copy, "scripts", "build-native.js")], { env, encoding: "utf8" });
  };
  return { built, addon: join(built, "lowbit.node"), run };
}

it("an addon appears when it is whole, the old one stays until then, and what a compiler does not say is said", () => {
  const { built, addon, run } = checkout();
  expect(run("none").stdout).toBe("lowbit: native addon built\n");
  expect(readFileSync(addon, "utf8")).toBe("whole");
  expect(readdirSync(built).sort()).toEqual(["lowbit.node", "lowbit.node.sources", "native"]);
  const note = readFileSync(`${addon}.sources`, "utf8");
  for (const [fault, said] of [
    ["silent", " ended with 3\n"],
    ["killed", " ended with SIGKILL\n"],
    ["interrupted", ""],
  ]) {
    writeFileSync(addon, "old");
    writeFileSync(`${addon}.sources`, "of others");
    expect(run(fault).stdout.slice(-said.length || undefined)).toBe(said);
    expect([addon, `${addon}.sources`].map((file) => readFileSync(file, "utf8"))).toEqual(["old", "of others"]);
  }
  expect(run("none").status).toBe(0);
  expect(readFileSync(addon, "utf8")).toBe("whole");
  expect(readFileSync(`${addon}.sources`, "utf8")).toBe(note);
  // Also of what the interrupted build left.
  expect(readdirSync(built).sort()).toEqual(["lowbit.node", "lowbit.node.sources", "native"]);
});
