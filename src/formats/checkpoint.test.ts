/** Checkpoint folders made in a temporary directory, whole and broken, and real ones. */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { InvalidArgumentError, InvalidFileError } from "../errors.ts";
import { openCheckpoint } from "./checkpoint.ts";
import { writeSafetensors } from "./safetensors-writer.ts";

const root = mkdtempSync(join(tmpdir(), "lowbit-checkpoint-"));
afterAll(() => rmSync(root, { recursive: true }));

const CONFIG = '{"model_type":"llama","hidden_size":64}';
const INDEX = "model.safetensors.index.json";
let folders = 0;

/** A new folder with these text files. */
function folderOf(files: Record<string, string | Uint8Array>): string {
  const folder = join(root, `f${folders++}`);
  mkdirSync(folder);
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);
  return folder;
}

async function addWeights(folder: string, file: string, tensors: Record<string, number[]>): Promise<void> {
  const entries = Object.entries(tensors).map(([name, values]) => ({
    name,
    dtype: "f32" as const,
    shape: [values.length],
    data: async () => Float32Array.from(values),
  }));
  await writeSafetensors(join(folder, file), entries);
}

/** A folder with config.json, these files and one tensor `w` in model.safetensors. */
async function singleFile(files: Record<string, string | Uint8Array> = {}): Promise<string> {
  const folder = folderOf({ "config.json": CONFIG, ...files });
  await addWeights(folder, "model.safetensors", { w: [1, 2, 3] });
  return folder;
}

/** A folder of two shards holding a, b and c, whose index has this weight_map. */
async function sharded(weightMap: unknown, shards = ["one.safetensors", "two.safetensors"]): Promise<string> {
  const index = JSON.stringify({ metadata: { total_size: 24 }, weight_map: weightMap });
  const folder = folderOf({ "config.json": CONFIG, [INDEX]: index });
  if (shards.includes("one.safetensors")) await addWeights(folder, "one.safetensors", { a: [1, 2], b: [3] });
  if (shards.includes("two.safetensors")) await addWeights(folder, "two.safetensors", { c: [4, 5, 6] });
  return folder;
}

/** Open descriptors of files under `root`, on systems that list them. */
function openDescriptors(): number | null {
  const list = "/proc/self/fd";
  if (!existsSync(list)) return null;
  return readdirSync(list).filter((name) => {
    try {
      return readlinkSync(join(list, name)).startsWith(root);
    } catch {
      return false;
    }
  }).length;
}

async function problemOf(path: string): Promise<string> {
  const error = await openCheckpoint(path).catch((cause: unknown) => cause);
  expect(error).toBeInstanceOf(InvalidFileError);
  return (error as Error).message;
}

describe("a folder with one weight file", () => {
  test("gives config and tensors, and null for what is absent", async () => {
    const folder = await singleFile();
    const checkpoint = await openCheckpoint(folder);
    expect(checkpoint.folder).toBe(folder);
    expect(checkpoint.config).toEqual({ model_type: "llama", hidden_size: 64 });
    expect(checkpoint.tensors.names).toEqual(["w"]);
    expect((await checkpoint.tensors.read("w")).data).toEqual(Float32Array.of(1, 2, 3));
    const { tokenizerJson, tokenizerConfig, generationConfig, chatTemplate } = checkpoint;
    expect([tokenizerJson, tokenizerConfig, generationConfig, chatTemplate]).toEqual([null, null, null, null]);
    await checkpoint.close();
    expect(openDescriptors() ?? 0).toBe(0);
  });

  test("gives the texts beside the weights as they were written", async () => {
    const tokenizer = '{ "model" : {"type":"BPE", "é":1.0} }\n';
    const folder = await singleFile({
      "tokenizer.json": tokenizer,
      "tokenizer_config.json": '{"bos_token":"<s>"}',
      "generation_config.json": '{"eos_token_id":[1,2]}',
    });
    const checkpoint = await openCheckpoint(folder);
    expect(checkpoint.tokenizerJson!.text).toBe(tokenizer);
    expect(checkpoint.tokenizerJson!.value).toEqual({ model: { type: "BPE", é: 1 } });
    expect(checkpoint.tokenizerConfig!.value).toEqual({ bos_token: "<s>" });
    expect(checkpoint.generationConfig!.value).toEqual({ eos_token_id: [1, 2] });
    await checkpoint.close();
  });

  test("opens by the path of the weight file too, which is then all the weights", async () => {
    const folder = await singleFile();
    await addWeights(folder, "other.safetensors", { v: [9] });
    const checkpoint = await openCheckpoint(join(folder, "other.safetensors"));
    expect([checkpoint.folder, checkpoint.tensors.names]).toEqual([folder, ["v"]]);
    await checkpoint.close();
  });
});

describe("the chat template", () => {
  const config = (template: unknown) => JSON.stringify({ chat_template: template });
  const list = [
    { name: "tool_use", template: "tools" },
    { name: "default", template: "plain" },
  ];
  const cases: [string, Record<string, string>, string | null][] = [
    ["a string in tokenizer_config.json", { "tokenizer_config.json": config("{{ x }}") }, "{{ x }}"],
    ["the default of a list", { "tokenizer_config.json": config(list) }, "plain"],
    ["none in a list without default", { "tokenizer_config.json": config(list.slice(0, 1)) }, null],
    ["none where it is null", { "tokenizer_config.json": config(null) }, null],
    ["a file, alone", { "chat_template.jinja": "file\n" }, "file\n"],
    ["a file before the config", { "chat_template.jinja": "file", "tokenizer_config.json": config("no") }, "file"],
  ];
  test.each(cases)("is %s", async (_, files, expected) => {
    const checkpoint = await openCheckpoint(await singleFile(files));
    expect(checkpoint.chatTemplate).toBe(expected);
    await checkpoint.close();
  });

  test.each([
    [5, "should be a string or a list but is 5"],
    [["x"], "should have a string name and template, found missing and missing"],
    [[{ name: "default" }], 'found "default" and missing'],
  ])("is refused when it is %j", async (template, problem) => {
    expect(await problemOf(await singleFile({ "tokenizer_config.json": config(template) }))).toContain(problem);
  });
});

describe("a folder of shards", () => {
  const map = { a: "one.safetensors", b: "one.safetensors", c: "two.safetensors" };

  test("reads as one source; each file is opened once and closed", async () => {
    const checkpoint = await openCheckpoint(await sharded(map));
    const { tensors } = checkpoint;
    expect(openDescriptors() ?? 2).toBe(2);
    expect(tensors.names).toEqual(["a", "b", "c"]);
    expect([tensors.has("c"), tensors.has("d"), tensors.has("toString")]).toEqual([true, false, false]);
    expect(tensors.info("c")).toMatchObject({ dtype: "f32", shape: [3] });
    expect((await tensors.read("b")).data).toEqual(Float32Array.of(3));
    expect((await tensors.readRows("c", 1, 2)).data).toEqual(Float32Array.of(5, 6));
    await expect(tensors.readRows("c", 1, 3)).rejects.toThrow(InvalidArgumentError);
    await expect(tensors.read("d")).rejects.toThrow(`${INDEX}: has no tensor "d" among its 3`);
    await checkpoint.close();
    expect(openDescriptors() ?? 0).toBe(0);
  });

  test("has only the tensors that the index names", async () => {
    const checkpoint = await openCheckpoint(await sharded({ c: "two.safetensors" }));
    expect(checkpoint.tensors.names).toEqual(["c"]);
    await checkpoint.close();
  });

  test("comes second to model.safetensors, as in transformers", async () => {
    const folder = await sharded(map);
    await addWeights(folder, "model.safetensors", { w: [1] });
    const checkpoint = await openCheckpoint(folder);
    expect(checkpoint.tensors.names).toEqual(["w"]);
    await checkpoint.close();
  });

  test.each([
    ["a tensor that its shard lacks", { ...map, d: "two.safetensors" }, 'places tensor "d" in "two.safetensors"'],
    ["no weight_map", undefined, "weight_map should be an object but is missing"],
    ["a list", ["a"], "weight_map should be an object but is an array"],
    ["no tensors", {}, "names no tensors"],
    ["a number for a shard", { a: 1 }, '"a" should name a file in the same folder but is 1'],
    ["an empty shard name", { a: "" }, "should name a file"],
    ["a path upwards", { a: "../f0/model.safetensors" }, "should name a file"],
    ["the folder above", { a: ".." }, "should name a file"],
    ["a path downwards", { a: "sub/one.safetensors" }, "should name a file"],
    ["an absolute path", { a: "/etc/passwd" }, "should name a file"],
    ["a Windows path", { a: "..\\one.safetensors" }, "should name a file"],
    ["a Windows drive", { a: "C:one.safetensors" }, "should name a file"],
    ["a name with a zero byte", { a: "one.safetensors\0" }, "should name a file"],
  ])("is refused with %s", async (_, weightMap, problem) => {
    const message = await problemOf(await sharded(weightMap));
    expect(message).toContain(`${INDEX}: `);
    expect(message).toContain(problem);
    expect(openDescriptors() ?? 0).toBe(0);
  });

  test("is refused with a tensor in two shards", async () => {
    const folder = await sharded(map);
    const twice = `{"weight_map": {"a": "one.safetensors", "b": "one.safetensors", "a": "two.safetensors"}}`;
    writeFileSync(join(folder, INDEX), twice);
    expect(await problemOf(folder)).toContain(`${INDEX}: has "a" twice`);
  });

  test("names the shard that is missing, and closes the others", async () => {
    const folder = await sharded(map, ["one.safetensors"]);
    expect(await problemOf(folder)).toBe(`${join(folder, "two.safetensors")}: no such file`);
    expect(openDescriptors() ?? 0).toBe(0);
  });

  test("names the shard that is damaged, and closes it", async () => {
    const folder = await sharded(map);
    const damaged = join(folder, "two.safetensors");
    writeFileSync(damaged, readFileSync(damaged).subarray(0, -1));
    expect(await problemOf(folder)).toContain(`${damaged}: tensor "c" ends at 12 but the data has 11`);
    expect(openDescriptors() ?? 0).toBe(0);
  });
});

describe("refuses", () => {
  test("a path with nothing there", async () => {
    const path = join(root, "absent");
    expect(await problemOf(path)).toBe(
      `${path}: no such file or folder; expected a checkpoint folder, a .safetensors file or a .gguf file`,
    );
  });

  test("a file of another kind", async () => {
    const path = join(folderOf({ "model.onnx": "ONNX" }), "model.onnx");
    expect(await problemOf(path)).toContain(
      "model.onnx: expected a checkpoint folder, or a file that ends in .gguf, .safetensors,",
    );
  });

  test("a folder without config.json, and says what is there", async () => {
    const folder = folderOf({ "model.pt": "" });
    expect(await problemOf(folder)).toBe(`${folder}: expected config.json but found model.pt`);
    const alone = folderOf({ "model.gguf": "GGUF" });
    expect(await problemOf(alone)).toContain("model.gguf: header is cut off after 4 bytes");
    await addWeights(alone, "model.safetensors", { w: [1] });
    expect(await problemOf(join(alone, "model.safetensors"))).toBe(
      `${alone}: expected config.json but found model.gguf, model.safetensors`,
    );
    expect(await problemOf(folderOf({}))).toContain("expected config.json but found no weights among its 0 files");
  });

  test("a folder without weights, and says what was looked for", async () => {
    const folder = folderOf({ "config.json": CONFIG, "model.pt": "" });
    expect(await problemOf(folder)).toBe(
      `${folder}: expected weights in model.safetensors or ${INDEX} but found model.pt`,
    );
  });

  test.each([
    ["config.json", "{", "not valid JSON"],
    ["config.json", "[1]", "should be a JSON object but is an array"],
    ["config.json", "null", "should be a JSON object but is null"],
    ["config.json", Uint8Array.of(0x7b, 0xff), "not UTF-8"],
    ["config.json", "\uFEFF{}", "it begins with a byte order mark (U+FEFF)"],
    ["tokenizer_config.json", "{'a': 1}", "not valid JSON"],
    [INDEX, "", "not valid JSON"],
  ])("a bad %s: %j", async (name, content, problem) => {
    const message = await problemOf(folderOf({ "config.json": CONFIG, [name]: content }));
    expect(message).toContain(`${name}: the file`);
    expect(message).toContain(problem);
  });

  test("a bad tokenizer.json only when its value is asked for", async () => {
    const checkpoint = await openCheckpoint(await singleFile({ "tokenizer.json": "[" }));
    expect(checkpoint.tokenizerJson!.text).toBe("[");
    expect(() => checkpoint.tokenizerJson!.value).toThrow(InvalidFileError);
    await checkpoint.close();
  });

  test("a folder where a file should be", async () => {
    const folder = folderOf({});
    mkdirSync(join(folder, "config.json"));
    expect(await problemOf(folder)).toContain("config.json: expected a file but found a directory");
  });
});

const shared = fileURLToPath(new URL("../../../shared", import.meta.url));
describe.skipIf(!existsSync(shared))("real folders (skipped: ../shared is absent)", () => {
  test("stories260K", async () => {
    const folder = join(shared, "models/stories260K");
    const checkpoint = await openCheckpoint(folder);
    const { hidden_size: hidden, vocab_size: vocab } = checkpoint.config;
    expect(checkpoint.tensors.info("model.embed_tokens.weight").shape).toEqual([vocab, hidden]);
    expect(checkpoint.tensors.has("lm_head.weight")).toBe(false);
    const last = await checkpoint.tensors.readRows("model.embed_tokens.weight", 511, 1);
    const all = await checkpoint.tensors.read("model.embed_tokens.weight");
    expect(last.data).toEqual(all.data.slice(511 * 64));
    expect(checkpoint.tokenizerJson!.text).toBe(readFileSync(join(folder, "tokenizer.json"), "utf8"));
    expect(checkpoint.tokenizerConfig!.value.bos_token).toBe("<s>");
    expect(checkpoint.chatTemplate).toBeNull();
    await checkpoint.close();
  });

  test("each golden model of transformers", async () => {
    const models = join(shared, "golden/transformers");
    for (const model of readdirSync(models)) {
      const checkpoint = await openCheckpoint(join(models, model));
      expect(checkpoint.config.model_type).toBeTypeOf("string");
      expect(checkpoint.tensors.has("model.embed_tokens.weight")).toBe(true);
      await checkpoint.close();
    }
  });
});
