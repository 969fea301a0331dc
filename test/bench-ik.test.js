/** ik_llama.cpp as a peer of the benchmarks, by a program in its place that answers as its llama-bench does. */
import { chmod, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { ikBenchOf, ikSeconds } from "../bench/peer-ik.js";
import { temporaryFolder } from "./support/folders.ts";

const folder = await temporaryFolder();
const engine = (program) => ({ program, path: "model.gguf", threads: 2 });

/** A program that notes its arguments in a file and prints. @param {string} name @param {string} printed */
async function programOf(name, printed) {
  const file = join(folder, name, "build", "bin", "llama-bench");
  await mkdir(join(folder, name, "build", "bin"), { recursive: true });
  await writeFile(file, `#!/bin/sh\necho "$@" > "$0.arguments"\ncat <<'END'\n${printed}\nEND\n`);
  await chmod(file, 0o755);
  return file;
}

describe("ik_llama.cpp's llama-bench", () => {
  it("gives seconds of a prompt and of decoding by its rates", async () => {
    const program = await programOf("fine", 'loading\n[ { "n_prompt": 512, "avg_ts": 128.0, "stddev_ts": 0.0 } ]');
    expect(ikBenchOf(join(folder, "fine"))).toBe(program);
    expect(await ikSeconds(engine(program), { what: "prefill", tokens: 512 })).toBe(4);
    const argumentsOf = async () => (await readFile(`${program}.arguments`, "utf8")).trim();
    expect(await argumentsOf()).toBe("-m model.gguf -t 2 -r 1 -o json -rtr 1 -p 512 -n 0");
    expect(await ikSeconds(engine(program), { what: "decode", tokens: 64 })).toBe(0.5);
    expect(await argumentsOf()).toBe("-m model.gguf -t 2 -r 1 -o json -rtr 1 -p 0 -n 64");
  });

  it("is refused where it has no rate, or is not there", async () => {
    const program = await programOf("odd", '[ { "n_prompt": 512 } ]');
    await expect(ikSeconds(engine(program), { what: "prefill", tokens: 512 })).rejects.toThrow(/expected avg_ts/);
    expect(() => ikBenchOf(folder)).toThrow(/expected llama-bench but found none of .*build\/bin\/llama-bench/);
    expect(() => ikBenchOf()).toThrow(/--ik <folder>/);
  });
});
