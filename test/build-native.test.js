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
import { afterAll, describe, expect, it } from "vitest";
import {
  instructionSetsOf,
  libraries,
  libraryBeside,
  nativeSources,
  objectName,
  passedOver,
  probeProgram,
  root,
  sourcesFingerprint,
} from "../scripts/native/sources.js";

const script = fileURLToPath(new URL("../scripts/native/build.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "lowbit-build-"));
const machine = `${process.platform}-${process.arch}`;
const allSets = instructionSetsOf(process.arch).join(" ");
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
  for (const name of libraries) writeFileSync(libraryBeside(out, name), "of these sources");
  writeFileSync(`${out}.sources`, `${sourcesFingerprint(machine)}\n${allSets}`);
  utimesSync(out, 0, 0);
  expect(build(["--strict"])).toMatchObject({ status: 0, stdout: "", stderr: "" });
  expect(readFileSync(out, "utf8")).toBe("of these sources");
  writeFileSync(`${out}.sources`, "of others");
  utimesSync(out, later, later);
  expect(build(["--strict"])).toMatchObject({
    status: 1,
    stdout: "lowbit: the native addon was not built; the one built before stays: no C++ compiler was found\n",
  });
  expect(readFileSync(out, "utf8")).toBe("of these sources");
  writeFileSync(out, "of these sources, for another machine that shares the folder");
  writeFileSync(`${out}.sources`, `${sourcesFingerprint("linux-s390x")}\n${allSets}`);
  expect(build(["--strict"]).status).toBe(1);
  writeFileSync(out, "of these sources, with the kernels of a lesser CPU");
  writeFileSync(`${out}.sources`, sourcesFingerprint(machine));
  expect(build([])).toMatchObject({ status: 0, stdout: "" });
  expect(build(["--strict"]).status).toBe(1);
});

/** A checkout of few sources, at a path that needs care, with a compiler that makes the fault named. @param {string[]} sources */
function checkout(...sources) {
  const copy = mkdtempSync(join(folder, "a checkout é漢"));
  const compiler = join(folder, "compiler.js");
  mkdirSync(join(copy, "scripts", "native"), { recursive: true });
  for (const name of ["build.js", "sources.js", "compile-progress.js"])
    copyFileSync(join(root, "scripts", "native", name), join(copy, "scripts", "native", name));
  for (const name of [
    "native/generic",
    "native/x86",
    "native/arm",
    "packages/aqlm/native/x86",
    "packages/aqlm/native/arm",
  ])
    mkdirSync(join(copy, name), { recursive: true });
  for (const name of ["addon.cc", ...sources]) writeFileSync(join(copy, "native", name), "");
  writeFileSync(join(copy, "packages/aqlm/native/library.cc"), "");
  for (const name of ["src", "node_modules"]) symlinkSync(join(root, name), join(copy, name), "junction");
  writeFileSync(join(copy, "package.json"), '{ "type": "module" }');
  writeFileSync(
    compiler,
    `const [fault, ...args] = process.argv.slice(2);
    if (args.includes("--version")) process.exit(0);
    const { appendFileSync, chmodSync, writeFileSync } = require("node:fs");
    const { basename } = require("node:path");
    const output = args[args.indexOf("-o") + 1];
    if (basename(output) === "probe") {
      writeFileSync(output, "#!/bin/sh\\necho " + process.env.TEST_SETS);
      chmodSync(output, 0o755);
      process.exit(0);
    }
    const link = !args.includes("-c");
    appendFileSync(${JSON.stringify(join(folder, "compiled"))}, basename(output) + "\\n");
    writeFileSync(output, fault === "none" ? "whole" : "half");
    const source = args.find((argument) => argument.endsWith(".cc"));
    if (args.includes("-MF")) {
      const { dirname, join } = require("node:path");
      const included = [...require("node:fs").readFileSync(source, "utf8").matchAll(/#include "(.+)"/g)];
      const files = [source, ...included.map(([, header]) => join(dirname(source), header))];
      const list = files.map((file) => file.replaceAll(" ", "\\\\ ")).join(" ");
      writeFileSync(args[args.indexOf("-MF") + 1], "object: " + list);
    }
    if (link && fault === "killed") process.kill(process.pid, "SIGKILL");
    if (link && fault === "interrupted") process.kill(process.ppid, "SIGKILL");
    if (fault === "silent") process.exit(3);`,
  );
  const built = join(copy, "build");
  /** `sets`: instruction sets of the CPU that the build runs on. */
  const run = (/** @type {string} */ fault, { sets = instructionSetsOf(process.arch), args = [] } = {}) => {
    const env = { ...process.env, CXX: `${process.execPath} ${compiler} ${fault}`, TEST_SETS: sets.join(" ") };
    rmSync(join(folder, "compiled"), { force: true });
    const result = spawnSync(process.execPath, [join(copy, "scripts", "native", "build.js"), ...args], {
      env,
      encoding: "utf8",
    });
    const compiled = existsSync(join(folder, "compiled")) ? readFileSync(join(folder, "compiled"), "utf8") : "";
    // Neither the addon itself nor what stands in for files that are left out.
    const objects = compiled.split("\n").filter((name) => name.endsWith(".cc.o") && !name.endsWith("absent.cc.o"));
    return { ...result, compiled: objects.sort() };
  };
  return { copy, built, addon: join(built, "lowbit.node"), run };
}

it("an addon appears when it is whole, the old one stays until then, and what a compiler does not say is said", () => {
  const { built, addon, run } = checkout();
  expect(run("none").stdout).toBe("lowbit: native addon built\n");
  expect(readFileSync(addon, "utf8")).toBe("whole");
  expect(readdirSync(built).sort()).toEqual(["lowbit-aqlm.node", "lowbit.node", "lowbit.node.sources", "native"]);
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
  expect(readdirSync(built).sort()).toEqual(["lowbit-aqlm.node", "lowbit.node", "lowbit.node.sources", "native"]);
});

describe.skipIf(process.platform === "win32" || allSets === "")("instruction sets", () => {
  const [least, most] =
    process.arch === "x64"
      ? [
          ["_avx2", "x86/linear_avx2.cc"],
          ["_amx", "x86/linear_amx.cc"],
        ]
      : [
          ["_i8mm", "arm/linear_i8mm.cc"],
          ["_bf16", "arm/linear_bf16.cc"],
        ];
  const libraryObject = objectName("../packages/aqlm/native/library.cc");
  const [leastObject, mostObject] = [least, most].map(([, file]) => objectName(file));

  it("of this CPU are built, those of a better one or all on demand, and no object twice", () => {
    const { copy, built, addon, run } = checkout(least[1], most[1]);
    const first = run("none", { sets: [least[0]] });
    expect(first.stdout).toBe("lowbit: native addon built, with the kernels that this CPU runs\n");
    expect(first.compiled).toEqual(["addon.cc.o", libraryObject, leastObject].sort());
    expect(run("none", { sets: [least[0]] })).toMatchObject({ stdout: "", stderr: "", compiled: [] });
    // The same folder on a CPU that has more.
    expect(run("none", { sets: [least[0], most[0]] }).compiled).toEqual([mostObject]);
    expect(run("none", { sets: [least[0]] })).toMatchObject({ stdout: "", compiled: [] });
    rmSync(join(built, "native", mostObject));
    rmSync(addon);
    expect(run("none", { sets: [least[0]] }).compiled).toEqual([]);
    const strict = () => run("none", { sets: [least[0]], args: ["--strict"] });
    expect(strict()).toMatchObject({
      stdout:
        "lowbit: native addon built, with the kernels that this CPU runs; those of other instruction sets are not optimized\n",
      compiled: [mostObject],
    });
    expect(strict()).toMatchObject({ stdout: "", compiled: [] });
    const all = () => run("none", { sets: [least[0]], args: ["--all"] });
    expect(all()).toMatchObject({ stdout: "lowbit: native addon built\n", compiled: [mostObject] });
    expect(all()).toMatchObject({ stdout: "", compiled: [] });
    expect(strict()).toMatchObject({ stdout: "", compiled: [] });
    expect(run("none", { sets: [] })).toMatchObject({ stdout: "", compiled: [] });
    writeFileSync(join(copy, "native", "addon.cc"), "// changed");
    expect(run("none", { sets: [least[0]] }).compiled).toEqual(["addon.cc.o"]);
    // What a header is included by is compiled again, and nothing else.
    writeFileSync(join(copy, "native", "new.h"), "");
    expect(run("none", { sets: [least[0]] }).compiled).toEqual([]);
    writeFileSync(join(copy, "native", "addon.cc"), '#include "new.h"');
    expect(run("none", { sets: [least[0]] }).compiled).toEqual(["addon.cc.o"]);
    writeFileSync(join(copy, "native", "new.h"), "// changed");
    expect(run("none", { sets: [least[0]] }).compiled).toEqual(["addon.cc.o"]);
  }, 300_000);

  it("are those that the sources' names say, and the compiler can tell which this CPU has", () => {
    const program = join(folder, "probe.cc");
    writeFileSync(program, probeProgram(process.arch));
    const cxx = (process.env.CXX || "c++").split(" ");
    const options = ["-std=c++17", `-I${join(root, "native")}`, program, "-o", join(folder, "probe")];
    const compiled = spawnSync(cxx[0], [...cxx.slice(1), ...options]);
    if (compiled.error) return;
    const printed = spawnSync(join(folder, "probe"), { encoding: "utf8" }).stdout.split("\n").filter(Boolean);
    const found = instructionSetsOf(process.arch).filter((set) => printed.includes(set));
    const files = nativeSources(process.arch).map(({ file }) => file.replaceAll("\\", "/"));
    // Sets come first, then files whose rows this CPU passes over.
    expect(printed).toEqual([...found, ...files.filter((file) => passedOver[file] && printed.includes(file))]);
    const flags = process.platform === "linux" && process.arch === "x64" ? readFileSync("/proc/cpuinfo", "utf8") : null;
    if (flags) expect(found.includes("_avx2")).toBe(/^flags.* avx2 /m.test(flags));
    if (flags) expect(found.includes("_avx512")).toBe(/^flags.* avx512vl /m.test(flags));
  });
});
