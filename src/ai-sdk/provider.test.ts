/** Models of a provider: loaded when they are first used, once, and freed by it. */
import { join } from "node:path";
import { beforeAll, describe, expect, it, vi } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { exportProgram } from "../api/export-program.ts";
import { loadProgram } from "../api/load-program.ts";
import { saveGguf } from "../api/save-gguf.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { InvalidArgumentError, InvalidFileError, UnsupportedError } from "../errors.ts";
import { createLowbit, lowbit } from "./provider.ts";

const folder = await temporaryFolder();
const path = join(folder, "tiny.pte");
const call = {
  prompt: [{ role: "user" as const, content: [{ type: "text" as const, text: "Hi" }] }],
  temperature: 0,
  maxOutputTokens: 4,
};

beforeAll(async () => {
  await writeTinyCheckpoint(folder);
  const model = await loadCheckpoint(folder);
  await exportProgram(model, path);
  await model.close();
});

describe("a provider", () => {
  it("runs a file by its path, which is loaded with the first call", async () => {
    const model = lowbit(path);
    expect(model).toMatchObject({ specificationVersion: "v3", provider: "lowbit", modelId: path });
    const first = await model.doGenerate(call);
    expect(await lowbit.languageModel(path).doGenerate(call)).toMatchObject({ content: first.content });
    await lowbit.dispose();
    expect(await model.doGenerate(call)).toMatchObject({ content: first.content });
    await lowbit.dispose();
  });

  it("runs checkpoints and GGUF, for text and embeddings", async () => {
    const expected = (await lowbit(path).doGenerate(call)).content;
    const gguf = join(await temporaryFolder(), "tiny.gguf");
    const model = await loadCheckpoint(folder);
    await saveGguf(model, gguf);
    await model.close();
    for (const one of [folder, gguf]) expect((await lowbit(one).doGenerate(call)).content).toEqual(expected);
    const bge = join(import.meta.dirname, "../../models/tiny-bge");
    const { embeddings } = await lowbit.embeddingModel(bge).doEmbed({ values: ["Paris", "Rome"] });
    expect(embeddings.map(({ length }) => length)).toEqual([64, 64]);
    await lowbit.dispose();
  });

  it("loads a model once for calls that come together, and again after a failure", async () => {
    const load = vi.fn(async () => loadProgram(path));
    load.mockRejectedValueOnce(new InvalidFileError("tiny.pte", "is not there yet"));
    const provider = createLowbit({ models: { tiny: load } });
    await expect(provider("tiny").doGenerate(call)).rejects.toThrow(/not there yet/);
    const answers = await Promise.all([provider("tiny").doGenerate(call), provider("tiny").doGenerate(call)]);
    expect(answers[0]!.content).toEqual(answers[1]!.content);
    expect(load).toHaveBeenCalledTimes(2);
    await provider.dispose();
  });

  it("loads a file once, by its path and by names", async () => {
    const onProgress = vi.fn();
    const provider = createLowbit({ models: { a: path, b: path }, load: { onProgress } });
    await provider("a").doGenerate(call);
    const { length } = onProgress.mock.calls;
    expect(length).toBeGreaterThan(0);
    await Promise.all([provider("b").doGenerate(call), provider(path).doGenerate(call)]);
    expect(onProgress).toHaveBeenCalledTimes(length);
    await provider.dispose();
  });

  it("takes the drafts of a smaller model, and says where it has other tokens", async () => {
    const { content } = await lowbit(path).doGenerate({ ...call, maxOutputTokens: 20 });
    await lowbit.dispose();
    const provider = createLowbit({ draft: path });
    expect((await provider(path).doGenerate({ ...call, maxOutputTokens: 20 })).content).toEqual(content);
    await provider.dispose();
    const missing = createLowbit({ draft: join(folder, "none.pte") });
    await expect(missing(path).doGenerate(call)).rejects.toThrow(/none\.pte/);
    await missing.dispose();
  });

  it("leaves loaded models to who loaded them", async () => {
    const model = await loadProgram(path);
    const provider = createLowbit({ models: { tiny: model } });
    await provider("tiny").doGenerate(call);
    await provider.dispose();
    expect((await model.chat([{ role: "user", content: "Hi" }], { maxTokens: 2 }).result).usage.promptTokens).toBe(5);
    await model.dispose();
  });

  it("ends the wait for a load, not the load, with a signal", async () => {
    const provider = createLowbit({ models: { tiny: () => loadProgram(path) } });
    const controller = new AbortController();
    const stopped = provider("tiny").doGenerate({ ...call, abortSignal: controller.signal });
    const other = provider("tiny").doGenerate(call);
    controller.abort(new Error("enough"));
    await expect(stopped).rejects.toThrow("enough");
    expect((await other).content).toHaveLength(1);
    await provider.dispose();
  });

  it("names what it does not have", async () => {
    await expect(lowbit("missing.pte").doGenerate(call)).rejects.toThrow(InvalidFileError);
    await expect(lowbit("toString").doGenerate(call)).rejects.toThrow(/^toString: /);
    expect(() => lowbit.imageModel("x")).toThrow(UnsupportedError);
    await expect(lowbit.embeddingModel(path).doEmbed({ values: ["x"] })).rejects.toThrow(/gives no embeddings$/);
    await lowbit.dispose();
    expect(() => lowbit(5 as never)).toThrow(InvalidArgumentError);
  });
});
