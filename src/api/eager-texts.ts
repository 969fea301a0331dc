/** A model that reads whole texts, executed operator by operator, without compiling. */
import { checkOptions, checkWhole } from "../arguments.ts";
import { type AbortOptions, checkModel, type Model } from "../checkpoint/model.ts";
import { longestText } from "../checkpoint/texts.ts";
import { capture } from "../compile/capture.ts";
import { argumentValues } from "../compile/graph.ts";
import { ContextLengthError, UnsupportedError } from "../errors.ts";
import type { Cpu } from "../kernels/contract.ts";
import { hostCpu } from "../kernels/cpu.ts";
import { textInputs } from "../language/text-inputs.ts";
import { isTextNetwork } from "../model/encoder.ts";
import { EagerBuilder } from "../ops/eager.ts";
import { operators } from "../ops/registry.ts";
import type { Tensor } from "../tensor.ts";
import { textSource } from "./compile-texts.ts";

/** A model of embeddings or scores, executed operator by operator: the same model code and kernels, for experiments. */
export class EagerTexts {
  /** Most tokens of a text. */
  readonly maxTokens: number;
  readonly #run: (inputs: readonly Tensor[]) => Tensor;
  readonly #inputOptions: { readonly firstPosition: number; readonly hasTypes: boolean };

  private constructor(
    run: (inputs: readonly Tensor[]) => Tensor,
    maxTokens: number,
    network: { readonly firstPosition: number; readonly tokenTypes: number },
  ) {
    this.#run = run;
    this.maxTokens = maxTokens;
    this.#inputOptions = { firstPosition: network.firstPosition, hasTypes: network.tokenTypes > 1 };
  }

  /** Reads (and quantizes and packs) all weights. UnsupportedError for a model that generates text. */
  static async load(model: Model, options: AbortOptions & { readonly cpu?: Cpu } = {}): Promise<EagerTexts> {
    checkModel(model);
    checkOptions(options);
    const { cpu = hostCpu(), signal } = options;
    const { network } = model;
    if (!isTextNetwork(network))
      throw new UnsupportedError(`${model.name}: ${network.architecture} generates text; EagerModel runs it`);
    const source = textSource(model, network, { signal }, false);
    const builder = new EagerBuilder(operators, cpu);
    for (const { constant } of capture(source, operators, cpu).nodes.flatMap(argumentValues)) {
      signal?.throwIfAborted();
      if (constant) await builder.load(constant);
    }
    const maxTokens = longestText(model.checkpoint, network);
    return new EagerTexts((inputs) => source.build<Tensor>(builder, inputs)[0]!, maxTokens, network);
  }

  /** Values of each text, given by its token ids. ContextLengthError for texts that are empty or too long. */
  compute(texts: readonly (readonly number[])[]): Float32Array[] {
    checkWhole("texts", texts.length, 1);
    for (const { length } of texts)
      if (length === 0 || length > this.maxTokens)
        throw new ContextLengthError(`text: expected 1 to ${this.maxTokens} tokens but found ${length}`);
    const inputs = textInputs(
      texts.map((ids) => ({ ids, secondFrom: ids.length })),
      this.#inputOptions,
    );
    const { data } = this.#run(inputs);
    const size = data.length / texts.length;
    return texts.map((_, i) => (data as Float32Array).slice(i * size, (i + 1) * size));
  }
}
