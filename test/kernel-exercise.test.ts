/** docs/contributing/kernel.md to the letter: a new elementwise kernel on all backends is one folder. */
import { execFile } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { build } from "esbuild";
import { beforeAll, expect, it } from "vitest";
import { temporaryFolder } from "./support/folders.ts";

const run = promisify(execFile);
const here = join(import.meta.dirname, "..");
const page = readFileSync(join(here, "docs/contributing/kernel.md"), "utf8");
/** The files of the exercise by their names. */
const files = [...page.matchAll(/^ {3}```\w+ file=(\S+)\n(.*?)^ {3}```$/gms)].map(
  ([, file, text]) => [file!, text!.replace(/^ {3}/gm, "")] as const,
);
const hasAddon = existsSync(join(here, "build/lowbit.node")) && process.platform === "linux";
let root: string;

beforeAll(async () => {
  root = await temporaryFolder();
  for (const name of ["src", "packages", "native", "scripts", "package.json", "tsconfig.json", "tsconfig.build.json"])
    cpSync(join(here, name), join(root, name), { recursive: true });
  for (const name of ["node_modules", "build"])
    if (existsSync(join(here, name))) symlinkSync(join(here, name), join(root, name));
  for (const [file, text] of files) {
    mkdirSync(dirname(join(root, file)), { recursive: true });
    writeFileSync(join(root, file), text);
  }
  await run(process.execPath, ["scripts/native/families.js"], { cwd: root });
});

/** Rows of all families for the vectors of every CPU, as a library: to build the addon anew would take minutes. */
const library = `
#include "native/generic/floats.h"
#include "native/families/vector_rows.h"
namespace lowbit {
constexpr KernelRow kRows[] = {LOWBIT_DECLARED_ROWS(LOWBIT_DECLARED_ROW, FloatsBaseline, "exercise", "4", kBaselineNeeds)};
}
extern "C" lowbit::KernelLibrary lowbit_kernel_library() {
  return {lowbit::kContract, {lowbit::kRows, sizeof lowbit::kRows / sizeof *lowbit::kRows}};
}
`;

const script = `
import { loadNativeKernels } from "./src/kernels/native/rows.ts";
if (process.argv[2]) loadNativeKernels(process.argv[2]);
const { hardSwish } = await import("./src/kernels/families/index.ts");
const x = Float32Array.from({ length: 37 }, (_, i) => (i - 18) / 4);
const found = hardSwish.flatMap((kernel) => {
  const y = new Float32Array(37);
  try {
    kernel.bind({ count: 37, x, y }, new Uint8Array(0), 1)();
  } catch (error) {
    if (/is not in the native addon|which this CPU does not have/.test(error.message)) return [];
    throw error;
  }
  return [{ name: kernel.name, y: [...y] }];
});
console.log(JSON.stringify(found));
process.exit(0);
`;

it("the page has a file in TypeScript and one in C++, both in a folder of the same name", () => {
  expect(files.map(([file]) => file)).toEqual([
    "src/kernels/families/hard-swish/hard-swish.ts",
    "native/families/hard-swish/hard_swish.h",
  ]);
});

it("has the right types", async () => {
  const config = { extends: "./tsconfig.json", include: ["src/kernels/families/hard-swish"] };
  writeFileSync(join(root, "exercise.json"), JSON.stringify(config));
  await run(process.execPath, [join(here, "node_modules/typescript/bin/tsc"), "-p", "exercise.json"], { cwd: root });
});

it("computes the same on all backends, from these files alone", async () => {
  // As deep as the module that looks for the addon.
  const bundle = join(root, "dist/kernels/native/run.mjs");
  const shared = join(root, "exercise.so");
  if (hasAddon) {
    writeFileSync(join(root, "exercise.cc"), library);
    const flags = ["-std=c++17", "-O0", "-fPIC", "-shared", "-ffp-contract=off", "-fno-exceptions", "-fno-rtti"];
    await run(process.env.CXX ?? "c++", [...flags, "exercise.cc", "-o", shared], { cwd: root });
    // The addon here knows all but the new family, which the library brings.
    cpSync(join(here, "src/kernels/native/abi.ts"), join(root, "src/kernels/native/abi.ts"));
  }
  await build({
    stdin: { contents: script, resolveDir: root, loader: "ts" },
    ...{ bundle: true, platform: "node", format: "esm", outfile: bundle, logLevel: "error" },
  });
  const { stdout } = await run(process.execPath, [bundle, ...(hasAddon ? [shared] : [])]);
  const found: { name: string; y: number[] }[] = JSON.parse(stdout);
  const backends = ["hard_swish_f32_1x1x4_wasm_simd", "hard_swish_f32_1x1x1_reference"];
  expect(found.map(({ name }) => name)).toEqual([...(hasAddon ? ["hard_swish_f32_1x1x4_exercise"] : []), ...backends]);
  for (const { name, y } of found)
    for (const [i, value] of y.entries()) {
      const x = (i - 18) / 4;
      const expected = x <= -3 ? 0 : x >= 3 ? x : (x * (x + 3)) / 6;
      expect(Math.abs(value - expected), `${name} of ${x}`).toBeLessThanOrEqual(1e-6);
    }
});
