/** The models of a server by name: loaded when they are first asked for, put away when others need their memory. */
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
  /** Bytes of memory that it is expected to take; 0 when that is unknown. */
  readonly bytes: number;
  /** Tokens that a text of it may have, as its file says; null, or absent, when that is unknown before it is loaded. */
  readonly contextLength?: number | null | undefined;
  /** What is known of it before it is loaded; null, or absent, for nothing. */
  readonly facts?: ModelFacts | null | undefined;
  /** Time at which its file was changed. Default: that of the server's start. */
  readonly modifiedAt?: Date | undefined;
  /** Loads it. */
  load(signal: AbortSignal): Promise<LanguageModel>;
  /** Removes what is kept of it on this machine; absent where that is not the server's to remove. */
  remove?(): Promise<void>;
}

/** A model that a request uses: it stays loaded until the request says that it is done. */
export interface ModelUse {
  readonly model: LanguageModel;
  /** Tokens that a text of the model may have, its prompt among them. */
  readonly contextLength: number;
  readonly done: () => void;
}

/** Milliseconds of a timer, which has 31 bits. */
const TIMER_MAX = 2 ** 31 - 1;
const FOREVER = Number.POSITIVE_INFINITY;

/** A model and what is known of it, for lists and metrics. */
export interface ListedModel {
  /** Name that requests call it by. */
  readonly name: string;
  /** Whether it is in memory, on its way there, or away until it is asked for. */
  readonly state: "away" | "loading" | "loaded";
  /** Bytes of memory that it is expected to take; 0 when that is unknown. */
  readonly bytes: number;
  /** Null unless it is loaded. */
  readonly model: LanguageModel | null;
  /** Tokens that a text of the model may have: as its file says before it was loaded; null where that is unknown. */
  readonly contextLength: number | null;
  /** What is known of it before it is loaded; null for nothing. */
  readonly facts: ModelFacts | null;
  /** Time at which its file was changed, or the server was started. */
  readonly modifiedAt: Date;
  /** Time at which it is put away unless it is used, in milliseconds since 1970; Infinity until others need its memory. */
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
  /** Milliseconds that it stays loaded when nobody uses it. */
  keepMs: number;
  expiresAt: number;
  timer: NodeJS.Timeout | undefined;
}

/** A name is shown in logs and metrics; paths are names of batches. */
const NAME = /^\P{Cc}{1,512}$/u;

/** Characters of a wrong name that a message shows. */
const SHOWN_MAX = 100;

/** Bytes that may be allocated now, as far as a container may. */
function freeBytes(): number {
  return process.availableMemory();
}

/** Bytes that a loaded model holds. */
export function bytesOf({ program }: LanguageModel): number {
  const { constants, scratch, state } = program.memoryUse;
  return constants + scratch + state + (program.sequenceStatistics?.bytes ?? 0);
}

/** Tokens that a text of a model may have. */
async function contextOf(model: LanguageModel): Promise<number> {
  const reader = model.embedding ?? model.reranker;
  if (reader) return reader.maxTokens;
  const decoder = model.createDecoder();
  await decoder.dispose();
  return decoder.contextLength;
}

export class ModelPool {
  readonly #startedAt = new Date();
  /** By all names: a model may have several. */
  readonly #entries = new Map<string, Entry>();
  readonly #memoryBytes: number;
  readonly #freeBytes: () => number;
  readonly #stop = new AbortController();
  #loads: Promise<unknown> = Promise.resolve();
  #uses = 0;
  #onIdle: () => void = () => {};

  /**
   * `memoryBytes`: most memory of all loaded models together; without it, as much as is free when one is to be loaded.
   * InvalidArgumentError for names that are used twice or could not be written in a log.
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

  /** Offers one more model. InvalidArgumentError for a name that is taken or could not be written in a log. */
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

  /** Offers a model by one more name. Errors are those of `add`, and ApiError 404 for no name of a model. */
  alias(name: string, other: string): void {
    const entry = this.#entryOf(name);
    this.#checkNew(other);
    this.#entries.set(other, entry);
  }

  /**
   * Offers a model no longer by a name: where it has no other, it is put away when nobody uses it, and what is kept of it is
   * removed. ApiError 404 for no name of a model.
   */
  async remove(name: string): Promise<void> {
    const entry = this.#entryOf(name);
    this.#entries.delete(name);
    if ([...this.#entries.values()].includes(entry)) return;
    await this.#unload(entry);
    await entry.source.remove?.();
  }

  /** Puts a model away, when nobody uses it any more. ApiError 404 for no name of a model. */
  async unload(name: string): Promise<void> {
    await this.#unload(this.#entryOf(name));
  }

  async #unload(entry: Entry): Promise<void> {
    await entry.loading?.catch(() => {});
    entry.keepMs = 0;
    await this.#putAwayIdle(entry);
  }

  /** Keeps a model loaded for so many seconds from when it was last used; Infinity for until others need its memory. */
  keep(name: string, seconds: number): void {
    const entry = this.#entryOf(name);
    entry.keepMs = seconds * 1000;
    if (entry.users === 0) this.#expire(entry);
  }

  /** Begins the time after which a model that nobody uses is put away. */
  #expire(entry: Entry): void {
    clearTimeout(entry.timer);
    entry.expiresAt = Date.now() + entry.keepMs;
    if (!entry.loaded || entry.keepMs > TIMER_MAX) return;
    const putAway = () => void this.#putAwayIdle(entry).catch(() => {});
    if (entry.keepMs === 0) putAway();
    else entry.timer = setTimeout(putAway, entry.keepMs).unref();
  }

  /** After loads that are under way, which count on what is there. */
  #putAwayIdle(entry: Entry): Promise<void> {
    const away = this.#loads.then(async () => {
      if (entry.loaded && entry.users === 0) await this.#putAway(entry);
    });
    this.#loads = away.catch(() => {});
    return away;
  }

  /** ApiError 404 for no name of a model. */
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

  /** The model of a name, loaded. ApiError 404 for no name of a model; an abort throws the signal's reason. */
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

  /** One load at a time: each needs to know what the others took. */
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

  /** Puts models away that nobody uses, the longest unused first, and waits for those in use where that is not enough. */
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

  /** Ends loads that are under way and frees all models. */
  async dispose(): Promise<void> {
    this.#stop.abort(new UnsupportedError("the server ends"));
    await this.#loads;
    for (const entry of this.#entries.values()) if (entry.loaded) await this.#putAway(entry);
  }
}
