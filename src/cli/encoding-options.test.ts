/** Options beside an AQLM mode: those that would change nothing are refused, before anything is encoded. */
import { existsSync, readdirSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { expect, test, vi } from "vitest";
import { lowbit } from "../../test/support/command-line.ts";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { deferred } from "../deferred.ts";
import { claimPath } from "../path-claim.ts";
import type { Terminal } from "./terminal.ts";

const folder = await temporaryFolder();
const checkpoint = join(folder, "checkpoint");
const out = join(folder, "out.pte");
await writeTinyCheckpoint(checkpoint);
const text = join(folder, "text.txt");
await writeFile(text, "To be, or not to be, that is the question. ".repeat(3));
/** Of which encoding and calibrating complain at once. */
const empty = join(folder, "empty.txt");
await writeFile(empty, "");

async function refusal(...options: string[]): Promise<string> {
  const { code, stdout, stderr } = await lowbit(["quantize", checkpoint, "-o", out, ...options]);
  expect([code, stdout]).toEqual([2, ""]);
  expect([existsSync(out), existsSync(`${out}.parts`)]).toEqual([false, false]);
  return stderr;
}

test.each([
  ["--mapping-type symmetric", "--mapping-type does not go with --qmode aqlm-2x8"],
  ["--algorithm gptq", "--algorithm does not go with --qmode aqlm-2x8"],
  [
    "--no-quantize-head",
    "--no-quantize-head does not go with --qmode aqlm-2x8, which leaves the head float without --head",
  ],
  ["--group-size 32", "--group-size does not go with --qmode aqlm-2x8: expected --head, whose groups it would size"],
  ["--group-size 32 --embedding 4,32", "--group-size does not go with --qmode aqlm-2x8: expected --head"],
  [
    "--scale-dtype f16",
    "--scale-dtype does not go with --qmode aqlm-2x8: expected --head, --embedding or --shared-embedding, to whose weights it would apply",
  ],
  [
    "--layout panel16",
    "--layout does not go with --qmode aqlm-2x8: expected --head, --embedding or --shared-embedding, to whose weights it would apply",
  ],
  [
    "--shared-embedding",
    "--shared-embedding does not go with --qmode aqlm-2x8 without bits and group size of its own: expected --shared-embedding 4,32 or the like",
  ],
  [
    "--format gguf",
    "--format gguf does not go with --qmode aqlm-2x8, whose weights only a program holds: expected --format pte",
  ],
  ["--format torchao --head 8da4w", "--format torchao does not go with --qmode aqlm-2x8"],
  [
    "--calibration-tokens 9",
    "--calibration-tokens needs the text whose tokens it counts: expected --calibrate text.txt",
  ],
])("%s is refused", async (options, message) => {
  expect(await refusal("--qmode", "aqlm-2x8", ...options.split(" "))).toContain(message);
});

test("tokens are counted of a text only, in any mode", async () => {
  expect(await refusal("--qmode", "8da4w", "--calibration-tokens", "9")).toContain("expected --calibrate text.txt");
});

test("what fits no layer is found before encoding", async () => {
  const options = ["--qmode", "aqlm-1x2", "--calibrate", text, "--embedding", "9,32"];
  const { code, stderr } = await lowbit(["quantize", checkpoint, "-o", out, ...options]);
  expect([code, stderr]).toEqual([1, expect.stringContaining('got bits "9"')]);
  expect(existsSync(`${out}.parts`)).toBe(false);
});

test.each(["--qmode aqlm-1x2", `--qmode 8da4w --algorithm imatrix --calibrate ${text}`])(
  "layers that another process makes are waited for: %s",
  async (options) => {
    const own = `${out}.own.pte`;
    const argv = ["quantize", checkpoint, "-o", own];
    const claim = await claimPath(`${own}.parts`);
    const told = deferred();
    const watch = (terminal: Terminal) => {
      vi.spyOn(terminal, "note").mockImplementation((line) => {
        terminal.stderr.write(`${line}\n`);
        told.resolve();
      });
    };
    const waiting = lowbit([...argv, ...options.split(" ")], { watch });
    expect(await lowbit([...argv, "--qmode", "8da4w"])).toMatchObject({ code: 0 });
    await told.promise;
    await claim.release();
    const { code, stderr } = await waiting;
    expect([code, stderr]).toEqual([0, expect.stringContaining(`${own}.parts: waits for process ${process.pid} on `)]);
    expect(readdirSync(dirname(own)).filter((name) => name.startsWith(`${basename(own)}.`))).toEqual([]);
  },
);

test.each([
  [
    "--qmode aqlm-1x2 --target executorch --max-context-len 65",
    "maxContextLen: expected a whole number from 1 to 64 but found 65",
  ],
  ["--qmode 8da4w --algorithm gptq --max-seq-len 65", "maxSeqLen: expected a whole number from 1 to 64 but found 65"],
  [
    "--qmode 8da4w --smoothquant --layout panel16 --target executorch",
    "target executorch: expected layout torchao_universal but found panel16",
  ],
])("%s is found impossible before encoding and calibrating", async (options, message) => {
  const argv = ["quantize", checkpoint, "-o", out, "--calibrate", empty, ...options.split(" ")];
  expect(await lowbit(argv)).toEqual({ code: 1, stdout: "", stderr: `lowbit: ${message}\n` });
  expect(existsSync(`${out}.parts`)).toBe(false);
});

test("a context that is too long is found before encoding in memory, too", async () => {
  const argv = ["eval", checkpoint, "--text", text, "--context", "65", "--qmode", "aqlm-1x2", "--calibrate", empty];
  const message = "contextLength: expected a whole number from 1 to 64 but found 65";
  expect(await lowbit(argv)).toEqual({ code: 1, stdout: "", stderr: `lowbit: ${message}\n` });
});

test.each(["aqlm2x8", "2x8"])("%s is no mode; those of AQLM are listed", async (mode) => {
  const { code, stderr } = await lowbit(["quantize", checkpoint, "-o", out, "--qmode", mode]);
  const known = `unknown qmode "${mode}"; known are 8da{1..8}w, torchao:8da{1..8}w, wo{1..8}w, 4w, 8w, int8, aqlm-{1..16}x{1..16}\n`;
  expect([code, stderr]).toEqual([1, expect.stringContaining(known)]);
});

test.each(["aqlm-2", "aqlm-0x8", "aqlm-17x8", "aqlm-2x17"])("%s is no mode of AQLM", async (mode) => {
  const { code, stderr } = await lowbit(["quantize", checkpoint, "-o", out, "--qmode", mode]);
  const expected = `qmode "${mode}": expected aqlm-<codebooks 1..16>x<bits 1..16>, such as aqlm-2x8`;
  expect([code, stderr]).toEqual([1, expect.stringContaining(expected)]);
});

test("a quantized head takes group size, scales and layout", async () => {
  const head = ["--head", "8da4w", "--group-size", "16", "--scale-dtype", "f16", "--layout", "panel16"];
  expect(await lowbit(["quantize", checkpoint, "-o", out, "--qmode", "aqlm-1x2", ...head])).toMatchObject({ code: 0 });
  const { weights } = JSON.parse((await lowbit(["inspect", out, "--json"])).stdout);
  expect(weights.find(({ name }: { name: string }) => name === "lm_head.weight")).toMatchObject({
    layout: "panel16",
    groupSize: 16,
    scaleType: "f16",
  });
});
