/** Models by name: when they are loaded, and which are put away. */
import { describe, expect, it } from "vitest";
import { InvalidArgumentError, InvalidFileError } from "../errors.ts";
import type { LanguageModel } from "../language/language-model.ts";
import { ModelPool, type ModelSource } from "./models.ts";

const never = new AbortController().signal;

/** Sources of models that take so many bytes, with a list of what was loaded and put away. */
function sources(sizes: Readonly<Record<string, number>>) {
  const events: string[] = [];
  const list = Object.entries(sizes).map(([name, bytes]): ModelSource => {
    const model = {
      program: { memoryUse: { constants: bytes, scratch: 0, state: 0 }, sequenceStatistics: null },
      createDecoder: () => ({ contextLength: 64, dispose: async () => {} }),
      dispose: async () => void events.push(`-${name}`),
    };
    const load = async () => {
      events.push(`+${name}`);
      return model as unknown as LanguageModel;
    };
    return { name, bytes, load };
  });
  return { list, events };
}

describe("ModelPool", () => {
  it("loads a model when it is first asked for, once for all who wait", async () => {
    const { list, events } = sources({ a: 1, b: 1 });
    const pool = new ModelPool(list);
    expect(events).toEqual([]);
    const uses = await Promise.all([pool.use("a", never), pool.use("a", never)]);
    expect(events).toEqual(["+a"]);
    expect(uses[0].contextLength).toBe(64);
    expect(pool.models.map(({ state }) => state)).toEqual(["loaded", "away"]);
    await pool.dispose();
    expect(events).toEqual(["+a", "-a"]);
  });

  it.each([
    ["the limit", { memoryBytes: 10 }],
    ["what is free", { freeBytes: () => 3 }],
  ])(
    "puts the longest unused away where %s is not enough",
    async (_, options: { readonly memoryBytes?: number; readonly freeBytes?: () => number }) => {
      const { list, events } = sources({ a: 4, b: 4, c: 4 });
      const pool = new ModelPool(list, { freeBytes: () => 1e9, ...options });
      if (options.memoryBytes === undefined) {
        (await pool.use("a", never)).done();
        (await pool.use("b", never)).done();
        expect(events).toEqual(["+a", "-a", "+b"]);
        return;
      }
      const a = await pool.use("a", never);
      const b = await pool.use("b", never);
      b.done();
      a.done();
      (await pool.use("b", never)).done();
      (await pool.use("c", never)).done();
      expect(events).toEqual(["+a", "+b", "-a", "+c"]);
    },
  );

  it("waits for models in use, which are never put away", async () => {
    const { list, events } = sources({ a: 4, b: 4 });
    const pool = new ModelPool(list, { memoryBytes: 5, freeBytes: () => 1e9 });
    const a = await pool.use("a", never);
    const b = pool.use("b", never);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(events).toEqual(["+a"]);
    a.done();
    a.done();
    (await b).done();
    expect(events).toEqual(["+a", "-a", "+b"]);
  });

  it("lets a waiter leave, and goes on loading for others", async () => {
    const { list, events } = sources({ a: 1 });
    let load = () => {};
    const loaded = new Promise<void>((resolve) => {
      load = resolve;
    });
    const slow: ModelSource = { ...list[0]!, load: (signal) => loaded.then(() => list[0]!.load(signal)) };
    const pool = new ModelPool([slow]);
    const gone = new AbortController();
    const first = pool.use("a", gone.signal);
    const second = pool.use("a", never);
    gone.abort(new Error("left"));
    await expect(first).rejects.toThrow("left");
    load();
    (await second).done();
    expect(events).toEqual(["+a"]);
  });

  it("tries again after a load that failed, without telling clients of paths", async () => {
    let tries = 0;
    const { list } = sources({ a: 1 });
    const failing: ModelSource = {
      ...list[0]!,
      load: async (signal) => {
        if (tries++ === 0) throw new InvalidFileError("/secret/a.pte", "is cut short");
        return list[0]!.load(signal);
      },
    };
    const pool = new ModelPool([failing]);
    const failure = await pool.use("a", never).catch((error) => error);
    expect([failure.status, failure.message.includes("secret")]).toEqual([500, false]);
    expect(failure.cause).toBeInstanceOf(InvalidFileError);
    (await pool.use("a", never)).done();
  });

  it("puts models away when their time is over, at once when they are to go, and never in use", async () => {
    const { list, events } = sources({ a: 1, b: 1 });
    const pool = new ModelPool(list);
    const first = await pool.use("a", never);
    pool.keep("a", 0.02);
    const second = await pool.use("a", never);
    first.done();
    await new Promise((resolve) => setTimeout(resolve, 60));
    expect(events).toEqual(["+a"]);
    second.done();
    await expect.poll(() => events).toEqual(["+a", "-a"]);
    const again = await pool.use("a", never);
    const unloaded = pool.unload("a");
    await unloaded;
    expect([events.length, pool.models[0]!.state]).toEqual([3, "loaded"]);
    again.done();
    await expect.poll(() => events).toEqual(["+a", "-a", "+a", "-a"]);
    expect(pool.models[0]!.state).toBe("away");
    (await pool.use("a", never)).done();
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(pool.models[0]).toMatchObject({ state: "loaded", expiresAt: Number.POSITIVE_INFINITY });
  });

  it("offers a model by several names as one, and removes it with the last", async () => {
    const { list, events } = sources({ a: 1, b: 1 });
    let removed = 0;
    const pool = new ModelPool([{ ...list[0]!, remove: async () => void removed++ }, list[1]!], { memoryBytes: 1 });
    pool.alias("a", "c");
    expect(() => pool.alias("a", "b")).toThrow(InvalidArgumentError);
    (await pool.use("a", never)).done();
    (await pool.use("c", never)).done();
    expect(events).toEqual(["+a"]);
    await pool.remove("a");
    expect([events, removed]).toEqual([["+a"], 0]);
    await expect(pool.use("a", never)).rejects.toMatchObject({ status: 404 });
    const use = await pool.use("c", never);
    await pool.remove("c");
    expect([events, removed]).toEqual([["+a"], 1]);
    use.done();
    await expect.poll(() => events).toEqual(["+a", "-a"]);
    pool.add(list[0]!);
    expect(pool.models.map(({ name }) => name)).toEqual(["b", "a"]);
  });

  it.each(["b", "", "../../etc/passwd", "..", "a\0", "__proto__", "constructor", "%2e%2e", "A", "a/"])(
    "knows no model %j",
    async (name) => {
      const pool = new ModelPool(sources({ a: 1 }).list);
      await expect(pool.use(name, never)).rejects.toMatchObject({ status: 404, code: "model_not_found" });
    },
  );

  it("refuses names that are used twice or cannot be written", () => {
    const { list } = sources({ a: 1 });
    expect(() => new ModelPool([...list, ...list])).toThrow(InvalidArgumentError);
    expect(() => new ModelPool([{ ...list[0]!, name: "a\nb" }])).toThrow(InvalidArgumentError);
    expect(() => new ModelPool([{ ...list[0]!, name: "" }])).toThrow(InvalidArgumentError);
  });
});
