/** What goes into the linear layers of a float model while it reads a text: for quantizers that look at activations. */
import { capture } from "../compile/capture.ts";
import { InvalidArgumentError, InvalidFileError } from "../errors.ts";
import { nextMacrotask } from "../event-loop.ts";
import { hostCpu } from "../kernels/cpu.ts";
import type { LazyConstant } from "../ops/builder.ts";
import { EagerBuilder } from "../ops/eager.ts";
import type { Argument } from "../ops/operator.ts";
import { Ops } from "../ops/ops.ts";
import { operators } from "../ops/registry.ts";
import type { Tensor } from "../tensor.ts";
import type { Model } from "./model.ts";
import { readTexts, textsOf } from "./texts.ts";

export interface ObserveOptions {
  /** Tokens of the text that are read, from its start. Default 4096. */
  readonly maxTokens?: number | undefined;
  /** Tokens that see each other. Default 256. */
  readonly window?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Called with the name of a weight and its input [1, T, k], which is overwritten by nothing. */
export type InputObserver = (weight: string, x: Tensor) => void;

const LINEAR = "aten::linear.out";

/** Runs the calls of float linear layers past an observer. */
class ObservingBuilder extends EagerBuilder {
  readonly #observe: InputObserver;
  readonly #names = new Map<Tensor, string>();

  constructor(observe: InputObserver) {
    super(operators, hostCpu());
    this.#observe = observe;
  }

  override constant(constant: LazyConstant): Tensor {
    const tensor = super.constant(constant);
    this.#names.set(tensor, constant.key.replace(/:[^:]*$/, ""));
    return tensor;
  }

  override call(operator: string, ...args: Argument<Tensor>[]): Tensor {
    const [x, weight] = args as [Tensor, Tensor];
    if (operator === LINEAR) this.#observe(this.#names.get(weight) ?? "", x);
    return super.call(operator, ...args);
  }
}

/**
 * Reads `text` window by window and shows the inputs of all linear layers that are float. The whole float model is in
 * memory meanwhile. InvalidFileError without a tokenizer, InvalidArgumentError for a text without tokens.
 */
export async function observeInputs(
  model: Model,
  text: string,
  observe: InputObserver,
  options: ObserveOptions = {},
): Promise<void> {
  const { maxTokens = 4096, window = Math.min(256, model.decoder.contextLength), signal } = options;
  const { tokenizer } = readTexts(textsOf(model.checkpoint), model.checkpoint.folder);
  if (!tokenizer)
    throw new InvalidFileError(model.checkpoint.folder, "expected a tokenizer.json to read the text with");
  const ids = tokenizer.encode(text).slice(0, maxTokens);
  if (ids.length === 0) throw new InvalidArgumentError("the text to calibrate with has no tokens");
  const builder = new ObservingBuilder(observe);
  const forward = <T>(ops: Ops<T>, tokens: T, position: T): T =>
    model.decoder.forward(
      ops,
      (name) => model.weight(name),
      { tokens, position },
      { capacity: window, logits: "last", kvCache: "f32", longContext: false },
    );
  const graph = capture(
    {
      name: "forward",
      inputs: [
        { name: "tokens", spec: { dtype: "i64", shape: [1, window] }, smallest: [1, 1] },
        { name: "input_pos", spec: { dtype: "i64", shape: [1] }, smallest: [1] },
      ],
      build: (recorder, [tokens, position]) => [forward(new Ops(recorder), tokens!, position!)],
    },
    operators,
    builder.cpu,
  );
  for (const value of graph.nodes.flatMap(({ args }) => args)) {
    signal?.throwIfAborted();
    if (typeof value === "object" && value && "constant" in value && value.constant) await builder.load(value.constant);
  }
  const position: Tensor = { dtype: "i64", shape: [1], data: BigInt64Array.of(0n) };
  for (let start = 0; start < ids.length; start += window) {
    signal?.throwIfAborted();
    const part = ids.slice(start, start + window);
    const tokens: Tensor = { dtype: "i64", shape: [1, part.length], data: BigInt64Array.from(part, BigInt) };
    forward(new Ops(builder), tokens, position);
    await nextMacrotask();
  }
}
