/** Models of a provider, each loaded once, when it is first used. */
import { orAbort } from "../abort.ts";
import { loadProgram } from "../api/load-program.ts";
import type { ProgramFileOptions } from "../api/program-file.ts";
import type { LanguageModel } from "../language/language-model.ts";

/** Which models a provider has, and how they are loaded. */
export interface LowbitSettings {
  /**
   * Models by the names that calls use: paths of `.pte` files, loaded models, which stay the caller's, or functions that
   * load one, such as from a checkpoint. A name that is not among them is a path of a `.pte` file.
   */
  readonly models?: Readonly<Record<string, string | LanguageModel | (() => Promise<LanguageModel>)>> | undefined;
  /** How `.pte` files are loaded: threads, the backend's CPU, progress. */
  readonly load?: Omit<ProgramFileOptions, "signal"> | undefined;
}

export class LoadedModels {
  readonly #settings: LowbitSettings;
  readonly #loads = new Map<string, Promise<LanguageModel>>();

  constructor(settings: LowbitSettings) {
    this.#settings = settings;
  }

  /** The model of a name or path. An abort ends the wait alone: others may wait for the same model. */
  async use(modelId: string, signal: AbortSignal | undefined): Promise<LanguageModel> {
    const { models = {}, load } = this.#settings;
    const model = Object.hasOwn(models, modelId) ? models[modelId]! : modelId;
    signal?.throwIfAborted();
    if (typeof model === "string") return this.#once(`file ${model}`, () => loadProgram(model, load), signal);
    return typeof model === "function" ? this.#once(`name ${modelId}`, model, signal) : model;
  }

  #once(key: string, load: () => Promise<LanguageModel>, signal: AbortSignal | undefined): Promise<LanguageModel> {
    const loading = this.#loads.get(key) ?? this.#begin(key, load);
    return orAbort(loading, signal);
  }

  #begin(key: string, load: () => Promise<LanguageModel>): Promise<LanguageModel> {
    const loading = Promise.resolve().then(load);
    this.#loads.set(key, loading);
    // What failed is tried again when it is asked for again.
    loading.catch(() => {
      if (this.#loads.get(key) === loading) this.#loads.delete(key);
    });
    return loading;
  }

  async dispose(): Promise<void> {
    const loads = [...this.#loads.values()];
    this.#loads.clear();
    const loaded = await Promise.allSettled(loads);
    await Promise.all(loaded.map((load) => (load.status === "fulfilled" ? load.value.dispose() : undefined)));
  }
}
