/** Commands whose output is, or lies over, what they read: refused before work begins, and what they read stays. */
import { spawnSync } from "node:child_process";
import {
  cpSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { lowbit } from "../../test/support/command-line.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";

const root = mkdtempSync(join(tmpdir(), "lowbit-inputs-"));
const [made, work] = [join(root, "made"), join(root, "work")];
const at = (name: string) => join(work, name);

beforeAll(async () => {
  mkdirSync(made);
  await writeTinyCheckpoint(join(made, "folder"));
  expect((await lowbit(["quantize", join(made, "folder"), "-o", join(made, "model.pte")])).code).toBe(0);
  writeFileSync(join(made, "text.txt"), "a b c ".repeat(100));
  writeFileSync(join(made, "recipe.json"), '{ "_default": null }');
});
beforeEach(() => {
  rmSync(work, { recursive: true, force: true });
  cpSync(made, work, { recursive: true });
  symlinkSync(at("folder"), at("link"));
  linkSync(at("folder/model.safetensors"), at("hard.pte"));
});
afterAll(() => rmSync(root, { recursive: true }));

/** All files and their contents. */
function contents(): Map<string, string> {
  const files = readdirSync(work, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const paths = files.map((entry) => join(entry.parentPath ?? entry.path, entry.name)).sort();
  return new Map(paths.map((path) => [path, readFileSync(path, "base64")]));
}

async function expectRefusal(argv: readonly string[], message: RegExp): Promise<void> {
  const before = contents();
  const { code, stdout, stderr } = await lowbit(argv);
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toMatch(message);
  expect(contents()).toEqual(before);
}

describe("an output over an input is refused", () => {
  test.each([
    ["a member of the folder", ["quantize", "folder", "-o", "folder/model.safetensors"]],
    ["the file", ["quantize", "folder/model.safetensors", "-o", "folder/model.safetensors"]],
    ["what would be a member", ["quantize", "folder", "-o", "link/tokenizer_config.json"]],
    ["another link to a member", ["quantize", "folder", "-o", "hard.pte"]],
    ["the folder itself", ["quantize", "folder", "--format", "torchao", "-o", "folder"]],
    ["a link to the folder", ["quantize", "folder/model.safetensors", "--format", "torchao", "-o", "link"]],
    ["a member, as GGUF", ["quantize", "folder", "--format", "gguf", "-o", "folder/model.safetensors"]],
    ["the recipe", ["quantize", "folder", "--recipe", "recipe.json", "-o", "recipe.json"]],
    ["the program", ["run", "model.pte", "a", "-n", "1", "--trace", "model.pte"]],
    ["the model of a batch", ["batch", "text.txt", "-o", "model.pte", "--model", "m=model.pte"]],
    ["a member, by a batch", ["batch", "text.txt", "-o", "folder/config.json", "--model", "folder"]],
    ["the requests of a batch", ["batch", "text.txt", "-o", "text.txt", "--model", "model.pte"]],
    ["a member, by a trace", ["run", "folder", "a", "-n", "1", "--trace", "folder/config.json"]],
  ])("%s: %j", async (_, argv) => {
    const names = argv.map((word) =>
      word.replace(/^(m=)?(?=folder|link|model|hard|recipe|text)(.*)$/, (_, name = "", path) => name + at(path)),
    );
    await expectRefusal(names, /is read|would replace|would become a part of|holds .*, which is read/);
  });
});

describe.skipIf(process.platform === "win32")("a named pipe is refused, never waited for", () => {
  test.each([
    [["run", "PIPE", "a"]],
    [["inspect", "PIPE"]],
    [["bench", "PIPE"]],
    [["bundle", "PIPE", "-o", "out"]],
    [["quantize", "PIPE.gguf", "-o", "out.pte"]],
    [["quantize", "folder", "--recipe", "PIPE", "-o", "out.pte"]],
    [["batch", "PIPE", "-o", "out.jsonl", "--model", "model.pte"]],
    [["batch", "text.txt", "-o", "PIPE", "--model", "model.pte"]],
    [["embed", "model.pte", "--file", "PIPE"]],
    [["embed", "PIPE", "a"]],
    [["serve", "model.pte", "--port", "0", "--keys", "PIPE"]],
    [["run", "model.pte", "a", "--data", "PIPE"]],
    [["eval", "model.pte", "--text", "PIPE"]],
    [["quantize", "folder", "-o", "PIPE"]],
  ])("%j", async (argv) => {
    for (const ending of ["", ".gguf"]) expect(spawnSync("mkfifo", [at(`PIPE${ending}`)]).status).toBe(0);
    const names = argv.map((word) => (/^(PIPE|folder|model|out|text)/.test(word) ? at(word) : word));
    await expectRefusal(names, /found a named pipe/);
  });

  test.each(["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"])(
    "in a checkpoint folder: %s",
    async (name) => {
      rmSync(at(`folder/${name}`), { force: true });
      expect(spawnSync("mkfifo", [at(`folder/${name}`)]).status).toBe(0);
      await expectRefusal(["run", at("folder"), "a"], /found a named pipe/);
    },
  );
});
