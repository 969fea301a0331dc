/** Runs the files of each way in docs/custom-operator.md; they print what the document says. */
import { spawnSync } from "node:child_process";
import { mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { format } from "node:util";
import { afterEach, describe, expect, it, vi } from "vitest";
import { nativeAddon } from "../../src/kernels/native/addon.ts";
import { temporaryFolder } from "../../test/support/folders.ts";
import { walkthrough } from "./walkthrough.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const folder = await temporaryFolder();
const ways = walkthrough();
const canCompile = nativeAddon() !== null && spawnSync("c++", ["--version"]).status === 0;
const skipped = canCompile ? "" : " (skipped: no native addon, or no C++ compiler)";

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  process.chdir(root);
});

/** What main.ts prints in a folder of its own, where node_modules has the package. @param {import("./walkthrough.js").Way} way */
async function run({ title, files, environment, compile }) {
  const own = join(folder, title);
  await mkdir(join(own, "node_modules"), { recursive: true });
  await symlink(root, join(own, "node_modules", "lowbit"));
  for (const [name, text] of files) await writeFile(join(own, name), text);
  process.chdir(own);
  if (compile) expect(spawnSync(compile, { shell: true, encoding: "utf8" })).toMatchObject({ status: 0, stderr: "" });
  for (const [name, value] of Object.entries(environment)) vi.stubEnv(name, value);
  const log = vi.spyOn(console, "log").mockReturnValue();
  // An operator is registered once only: each way has a copy of the package of its own.
  vi.resetModules();
  await import(join(own, "main.ts"));
  return log.mock.calls.map((values) => `${format(...values)}\n`).join("");
}

describe("docs/custom-operator.md", () => {
  it.each(ways.filter(({ compile }) => !compile))("$title: prints what it says", async (way) => {
    expect(await run(way)).toBe(way.printed);
  });

  it.skipIf(!canCompile).each(ways.filter(({ compile }) => compile))(
    `$title: prints what it says${skipped}`,
    async (way) => {
      expect(await run(way)).toBe(way.printed);
    },
  );

  it("ends with the files of examples/", async () => {
    const { files } = ways.at(-1);
    expect(ways.map(({ title }) => title)).toEqual(["In TypeScript", "With WebAssembly", "With C++"]);
    for (const [name, text] of files) {
      const example = await readFile(join(root, "examples", "squared-relu", name), "utf8");
      expect(example, name).toBe(text);
    }
  });
});
