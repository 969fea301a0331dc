/**
 * `npm run test:sanitize`: the native addon under the sanitizers of gcc, in an ordinary Node.
 *
 *   npm run test:sanitize                                        both, one after the other
 *   npm run test:sanitize -- --only address                      memory and undefined behaviour: conformance, hostile programs, the fuzzer
 *   npm run test:sanitize -- --only thread                       every row on several threads; two models at once, aborts and disposal
 *   npm run test:sanitize -- --only address --files edges,aqlm   some files of the conformance tests, and nothing else
 *   npm run test:sanitize -- --only address -- npx vitest run …  a command of one's own with that addon
 *
 * Reports of any process that the command starts are printed and fail it. Linux only: Node itself is not instrumented, so
 * that the sanitizer's library is loaded before it.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { bundleTests } from "../engines/bundle-tests.js";
import { instructionSetsOf, root } from "../native/sources.js";

const folder = join(root, "build", "sanitize");

const fuzzer = join(root, "scripts", "stress", "fuzz.js");
const vitest = join(root, "node_modules", "vitest", "vitest.mjs");
const hostile = [vitest, "run", "--project", "hostile", "test/hostile-programs.test.ts", "-t", "on native"];

/** @typedef {{ flags: string, libraries: string[], options: Record<string, string>, commands: (files: readonly string[]) => Promise<string[][]> }} Kind */

/** @type {Record<string, Kind>} */
const kinds = {
  address: {
    flags: "address,undefined",
    libraries: ["libasan.so", "libubsan.so"],
    // Node frees little of what it has when it ends: leaks cannot be told apart.
    options: { ASAN_OPTIONS: "detect_leaks=0", UBSAN_OPTIONS: "print_stacktrace=1" },
    commands: async (files) => [
      [await bundled("arm/conformance.js"), ...files],
      ...(files.length > 0
        ? []
        : [hostile, [fuzzer, "--kinds", "programs,layers", "--backends", "native", "--count", "400"]]),
    ],
  },
  thread: {
    flags: "thread",
    libraries: ["libtsan.so"],
    options: { TSAN_OPTIONS: `suppressions=${join(root, "scripts", "sanitize", "thread.supp")}` },
    commands: async (files) => [
      [await bundled("arm/conformance.js"), ...files],
      ...(files.length > 0 ? [] : [[await bundled("sanitize/two-models.js")]]),
    ],
  },
};

const { values, positionals } = parseArgs({
  options: { only: { type: "string" }, files: { type: "string" } },
  allowPositionals: true,
});
const files = values.files?.split(",") ?? [];
const chosen = Object.keys(kinds).filter((name) => values.only === undefined || values.only === name);
if (chosen.length === 0 || process.platform !== "linux") {
  console.error(`test:sanitize: expected Linux and --only ${Object.keys(kinds).join(" or ")}`);
  process.exit(2);
}

/** A script of tests as one module for Node. @param {string} entry within scripts */
async function bundled(entry) {
  const file = join(folder, entry.replaceAll("/", "-"));
  await bundleTests(entry, file, { platform: "node", external: ["esbuild"] });
  return file;
}

/** @param {string} name */
async function test(name) {
  const { flags, libraries, options, commands } = kinds[name];
  execFileSync(process.execPath, [join(root, "scripts", "native", "build.js"), `--sanitize=${flags}`], {
    stdio: "inherit",
  });
  const addon = join(root, "build", `lowbit-${flags.replaceAll(",", "-")}.node`);
  const [, sets = ""] = readFileSync(`${addon}.sources`, "utf8").split("\n");
  const absent = instructionSetsOf(process.arch).filter((set) => !sets.split(" ").includes(set));
  const others = ["x64", "arm64"].filter((arch) => arch !== process.arch);
  console.log(
    `${name}: not run are ${absent.join(", ") || "no instruction sets"} (this CPU), ${others} (another machine)`,
  );

  const reports = join(folder, "reports");
  rmSync(reports, { recursive: true, force: true });
  mkdirSync(reports, { recursive: true });
  const preload = libraries.map((library) =>
    realpathSync(execFileSync("g++", [`-print-file-name=${library}`], { encoding: "utf8" }).trim()),
  );
  const logged = Object.entries(options).map(([key, value]) => [key, `log_path=${join(reports, name)}:${value}`]);
  const env = {
    ...process.env,
    ...Object.fromEntries(logged),
    LD_PRELOAD: preload.join(" "),
    LOWBIT_NATIVE_PATH: addon,
    LOWBIT_BACKEND: "native",
    // Conformance tests of fewer sizes: what is not optimized and checks each access is slow.
    LOWBIT_EMULATED: "1",
  };
  const all =
    positionals.length > 0 ? [positionals] : (await commands(files)).map((args) => [process.execPath, ...args]);
  let passed = true;
  for (const [command, ...args] of all) {
    const start = performance.now();
    const { status, signal } = spawnSync(command, args, { cwd: root, env, stdio: "inherit" });
    const seconds = Math.round((performance.now() - start) / 1000);
    console.log(`${name}: ${[command, ...args].join(" ")} ended with ${signal ?? status} in ${seconds} s`);
    passed &&= status === 0;
  }
  const found = readdirSync(reports);
  for (const file of found) console.log(readFileSync(join(reports, file), "utf8"));
  console.log(`${name}: ${passed && found.length === 0 ? "passed" : `FAILED, ${found.length} processes with reports`}`);
  return passed && found.length === 0;
}

mkdirSync(folder, { recursive: true });
let failed = false;
for (const name of chosen) if (!(await test(name))) failed = true;
process.exit(failed ? 1 : 0);
