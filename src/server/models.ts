/** The models of a server by name: loaded when first asked for, unloaded when others need their memory. */
import { totalmem } from "node:os";
import { orAbort } from "../abort.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { LanguageModel } from "../language/language-model.ts";
import { logInfo } from "../log.ts";
import type { ModelFacts } from "../model-facts.ts";
import { ApiError } from "./errors.ts";

/** A model that a server offers. */
export interface ModelSource {
  /** Name that requests call it by. */
  readonly name: string;
  /** Expected bytes of memory; 0 when unknown. */
  readonly bytes: number;
  /** Context length in tokens as its file says; null or absent when unknown before it is loaded. */
  readonly contextLength?: number | null | undefined;
  /** Facts known before it is loaded; null or absent for none. */
  readonly facts?: ModelFacts | null | undefined;
  /** Modification time of its file. Default: the time of the server's start. */
  readonly modifiedAt?: Date | undefined;
  /** Loads the model. */
  load(signal: AbortSignal): Promise<LanguageModel>;
  /** Removes the model's files from this machine; absent where the server must not remove them. */
  remove?(): Promise<void>;
}

/** A request's use of a model, which stays loaded until `done` is called. */
export interface ModelUse {
  readonly model: LanguageModel;
  /** Context length in tokens, prompt included. */
  readonly contextLength: number;
  readonly done: () => void;
}

/** Most milliseconds of a timer, which has 31 bits. */
const TIMER_MAX = 2 ** 31 - 1;
const FOREVER = Number.POSITIVE_INFINITY;

/** A model and its state, for lists and metrics. */
export interface ListedModel {
  /** Name that requests call it by. */
  readonly name: string;
  /** Whether it is loaded, being loaded, or not loaded ("away"). */
  readonly state: "away" | "loading" | "loaded";
  /** Expected bytes of memory; 0 when unknown. */
  readonly bytes: number;
  /** The loaded model; null unless it is loaded. */
  readonly model: LanguageModel | null;
  /** Context length in tokens; before the first load, as its file says; null where that is unknown. */
  readonly contextLength: number | null;
  /** Facts known before it is loaded; null for none. */
  readonly facts: ModelFacts | null;
  /** Modification time of its file, or the time of the server's start. */
  readonly modifiedAt: Date;
  /**
   * Time at which it is unloaded unless it is used, in milliseconds since 1970; Infinity for when others need its memory.
   */
  readonly expiresAt: number;
}

interface Loaded {
  readonly model: LanguageModel;
  readonly contextLength: number;
}

interface Entry {
  readonly source: ModelSource;
  contextLength: number | null;
  loaded: Loaded | null;
  loading: Promise<Loaded> | null;
  users: number;
  usedAt: number;
  /** Milliseconds that it stays loaded without use. */
  keepMs: number;
  expiresAt: number;
  timer: NodeJS.Timeout | undefined;
}

/** Names are shown in logs and metrics, so they have no control characters; in batches, names are paths. */
const NAME = /^\P{Cc}{1,512}$/u;

/** Characters of a wrong name that a message shows. */
const SHOWN_MAX = 100;

/** Bytes that may be allocated now, within the container's limit. */
function freeBytes(): number {
  return process.availableMemory();
}

/** Bytes of memory that a loaded model holds: weights, scratch, states and KV cache. */
export function bytesOf({ program }: LanguageModel): number {
  const { constants, scratch, state } = program.memoryUse;
  return constants + scratch + state + (program.sequenceStatistics?.bytes ?? 0);
}

/** Context length of a loaded model, in tokens. */
async function contextOf(model: LanguageModel): Promise<number> {
  const reader = model.embedding ?? model.reranker;
  if (reader) return reader.maxTokens;
  const decoder = model.createDecoder();
  await decoder.dispose();
  return decoder.contextLength;
}

export class ModelPool {
  readonly #startedAt = new Date();
  /** Entries by name; a model may have several names. */
  readonly #entries = new Map<string, Entry>();
  readonly #memoryBytes: number;
  readonly #freeBytes: () => number;
  readonly #stop = new AbortController();
  #loads: Promise<unknown> = Promise.resolve();
  #uses = 0;
  #onIdle: () => void = () => {};

  /**
   * `memoryBytes`: most bytes of all loaded models; without it, the memory that is free when a model is loaded.
   * InvalidArgumentError for names that are used twice or cannot be written to a log.
   */
  constructor(
    sources: readonly ModelSource[],
    options: { readonly memoryBytes?: number | undefined; readonly freeBytes?: () => number } = {},
  ) {
    this.#memoryBytes = options.memoryBytes ?? totalmem();
    this.#freeBytes = options.freeBytes ?? freeBytes;
    for (const source of sources) this.add(source);
  }

  get models(): readonly ListedModel[] {
    return Array.from(this.#entries, ([name, { source, contextLength, loaded, loading, expiresAt }]) => ({
      name,
      state: loaded ? "loaded" : loading ? "loading" : "away",
      bytes: source.bytes,
      model: loaded?.model ?? null,
      contextLength,
      facts: source.facts ?? null,
      modifiedAt: source.modifiedAt ?? this.#startedAt,
      expiresAt,
    }));
  }

  has(name: string): boolean {
    return this.#entries.has(name);
  }

  /** Adds a model. InvalidArgumentError for a name that is taken or cannot be written to a log. */
  add(source: ModelSource): void {
    const { name, contextLength = source.facts?.contextLength ?? null } = source;
    this.#checkNew(name);
    const idle = { loaded: null, loading: null, users: 0, usedAt: 0, timer: undefined };
    this.#entries.set(name, { source, contextLength, ...idle, keepMs: FOREVER, expiresAt: FOREVER });
  }

  #checkNew(name: string): void {
    if (!NAME.test(name))
      throw new InvalidArgumentError(
        `model ${JSON.stringify(name)}: expected a name of 1 to 512 characters without control characters`,
      );
    if (this.#entries.has(name))
      throw new InvalidArgumentError(
        `model ${name}: expected names that differ but found it twice; give one another name`,
      );
  }

  /** Adds another name of a model. Throws as `add`, and ApiError 404 for an unknown model. */
  alias(name: string, other: string): void {
    const entry = this.#entryOf(name);
    this.#checkNew(other);
    this.#entries.set(other, entry);
  }

  /**
   * Removes a name of a model. Without other names, the model is unloaded when nobody uses it, and its files are removed.
   * ApiError 404 for an unknown model.
   */
  async remove(name: string): Promise<void> {
    const entry = this.#entryOf(name);
    this.#entries.delete(name);
    if ([...this.#entries.values()].includes(entry)) return;
    await this.#unload(entry);
    await entry.source.remove?.();
  }

  /** Unloads a model when nobody uses it any more. ApiError 404 for an unknown model. */
  async unload(name: string): Promise<void> {
    await this.#unload(this.#entryOf(name));
  }

  async #unload(entry: Entry): Promise<void> {
    await entry.loading?.catch(() => {});
    entry.keepMs = 0;
    await this.#putAwayIdle(entry);
  }

  /** Keeps a model loaded for `seconds` after its last use; Infinity: until others need its memory. */
  keep(name: string, seconds: number): void {
    const entry = this.#entryOf(name);
    entry.keepMs = seconds * 1000;
    if (entry.users === 0) this.#expire(entry);
  }

  /** Starts the timer after which an unused model is unloaded. */
  #expire(entry: Entry): void {
    clearTimeout(entry.timer);
    entry.expiresAt = Date.now() + entry.keepMs;
    if (!entry.loaded || entry.keepMs > TIMER_MAX) return;
    const putAway = () => void this.#putAwayIdle(entry).catch(() => {});
    if (entry.keepMs === 0) putAway();
    else entry.timer = setTimeout(putAway, entry.keepMs).unref();
  }

  /** Unloads after loads under way, which have counted on the memory as it is. */
  #putAwayIdle(entry: Entry): Promise<void> {
    const away = this.#loads.then(async () => {
      if (entry.loaded && entry.users === 0) await this.#putAway(entry);
    });
    this.#loads = away.catch(() => {});
    return away;
  }

  /** ApiError 404 for an unknown model. */
  check(name: string): void {
    this.#entryOf(name);
  }

  #entryOf(name: string): Entry {
    const entry = this.#entries.get(name);
    if (entry) return entry;
    const shown = name.length > SHOWN_MAX ? `${name.slice(0, SHOWN_MAX)}…` : name;
    const message = `model ${JSON.stringify(shown)}: expected one of ${[...this.#entries.keys()].join(", ")}`;
    throw new ApiError(404, message, { code: "model_not_found", param: "model" });
  }

  /** Gives a model, loaded. ApiError 404 for an unknown model; an abort throws the signal's reason. */
  async use(name: string, signal: AbortSignal): Promise<ModelUse> {
    const entry = this.#entryOf(name);
    signal.throwIfAborted();
    entry.users++;
    clearTimeout(entry.timer);
    try {
      const loaded = entry.loaded ?? (await orAbort(this.#load(entry), signal));
      let isDone = false;
      const done = () => {
        if (!isDone) this.#leave(entry);
        isDone = true;
      };
      return { ...loaded, done };
    } catch (error) {
      this.#leave(entry);
      throw error;
    }
  }

  #leave(entry: Entry): void {
    entry.users--;
    entry.usedAt = ++this.#uses;
    if (entry.users > 0) return;
    this.#onIdle();
    this.#expire(entry);
  }

  /** Loads one model at a time, since each load must know the memory that the others took. */
  #load(entry: Entry): Promise<Loaded> {
    if (entry.loading) return entry.loading;
    const loading = this.#loads.then(() => this.#loadNow(entry));
    entry.loading = loading;
    this.#loads = loading.catch(() => {});
    return loading;
  }

  async #loadNow(entry: Entry): Promise<Loaded> {
    const { signal } = this.#stop;
    const { name, bytes } = entry.source;
    entry.keepMs = FOREVER;
    entry.expiresAt = FOREVER;
    try {
      signal.throwIfAborted();
      await this.#makeRoom(bytes, signal);
      logInfo(() => `loading model ${name}`);
      const model = await entry.source.load(signal);
      entry.contextLength = await contextOf(model);
      entry.loaded = { model, contextLength: entry.contextLength };
      return entry.loaded;
    } catch (error) {
      if (signal.aborted || error instanceof ApiError) throw error;
      throw new ApiError(500, `the model ${name} cannot be loaded; the server's log says why`, { cause: error });
    } finally {
      entry.loading = null;
    }
  }

  /** Unloads models that nobody uses, the longest unused first, and waits for models in use where that is not enough. */
  async #makeRoom(bytes: number, signal: AbortSignal): Promise<void> {
    for (;;) {
      const loaded = [...new Set(this.#entries.values())].filter((entry) => entry.loaded !== null);
      const taken = loaded.reduce((sum, { loaded }) => sum + bytesOf(loaded!.model), 0);
      if (loaded.length === 0 || (taken + bytes <= this.#memoryBytes && bytes <= this.#freeBytes())) return;
      const idle = loaded.filter(({ users }) => users === 0).sort((a, b) => a.usedAt - b.usedAt)[0];
      if (idle) await this.#putAway(idle);
      else await orAbort(this.#nextIdle(), signal);
    }
  }

  #nextIdle(): Promise<void> {
    return new Promise((resolve) => {
      this.#onIdle = resolve;
    });
  }

  async #putAway(entry: Entry): Promise<void> {
    const { loaded, source } = entry;
    clearTimeout(entry.timer);
    entry.loaded = null;
    logInfo(() => `putting model ${source.name} away`);
    await loaded!.model.dispose();
  }

  /** Aborts loads under way and frees all models. */
  async dispose(): Promise<void> {
    this.#stop.abort(new UnsupportedError("the server ends"));
    await this.#loads;
    for (const entry of this.#entries.values()) if (entry.loaded) await this.#putAway(entry);
  }
}
