/** Models of a provider, each loaded once, when first used. */
import { orAbort } from "../abort.ts";
import { loadModel } from "../api/load-model.ts";
import type { ProgramFileOptions } from "../api/program-file.ts";
import type { LanguageModel } from "../language/language-model.ts";
import { drafts } from "../text/draft-source.ts";

/** Settings of a provider: its models, and how they are loaded. */
export interface LowbitSettings {
  /**
   * Models by the names that calls use: paths, loaded models (which the caller disposes of), or functions that load one. A
   * name that is not among them is a path: of a `.pte` file, of a checkpoint folder or GGUF file (whose weights are kept as
   * stored), or "hf:org/name", which becomes a 4-bit program once.
   */
  readonly models?: Readonly<Record<string, string | LanguageModel | (() => Promise<LanguageModel>)>> | undefined;
  /** Options of loading models from paths, such as threads, CPU and progress. */
  readonly load?: Omit<ProgramFileOptions, "signal"> | undefined;
  /**
   * Where drafts come from for models that the provider loads: "lookup", "off", or the path of a smaller model with the
   * same tokens. Default: "lookup".
   */
  readonly draft?: string | undefined;
}

export class LoadedModels {
  readonly #settings: LowbitSettings;
  readonly #loads = new Map<string, Promise<LanguageModel>>();

  constructor(settings: LowbitSettings) {
    this.#settings = settings;
  }

  /** Gives the model of a name or path. An abort only ends the wait, since others may wait for the same model. */
  async use(modelId: string, signal: AbortSignal | undefined): Promise<LanguageModel> {
    const { models = {}, load } = this.#settings;
    const model = Object.hasOwn(models, modelId) ? models[modelId]! : modelId;
    signal?.throwIfAborted();
    if (typeof model === "object") return model;
    const [key, begin] =
      typeof model === "string" ? [`file ${model}`, () => loadModel(model, load)] : [`name ${modelId}`, model];
    return this.#once(key, async () => this.#drafted(await begin()), signal);
  }

  /** Sets the provider's drafts on a model. */
  async #drafted(model: LanguageModel): Promise<LanguageModel> {
    const { draft, load } = this.#settings;
    if (draft === undefined || model.makes !== "text") return model;
    const named = drafts.find((name) => name === draft);
    try {
      model.draft = named ?? (await this.#once(`draft ${draft}`, () => loadModel(draft, load), undefined));
    } catch (error) {
      await model.dispose();
      throw error;
    }
    return model;
  }

  #once(key: string, load: () => Promise<LanguageModel>, signal: AbortSignal | undefined): Promise<LanguageModel> {
    const loading = this.#loads.get(key) ?? this.#begin(key, load);
    return orAbort(loading, signal);
  }

  #begin(key: string, load: () => Promise<LanguageModel>): Promise<LanguageModel> {
    const loading = Promise.resolve().then(load);
    this.#loads.set(key, loading);
    // After a failure, the next use tries again.
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
