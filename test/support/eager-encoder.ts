/** A model that reads whole texts, operator by operator, to compare its program with. */
import { encoderSource } from "../../src/api/compile-encoder.ts";
import type { Model } from "../../src/checkpoint/model.ts";
import { capture } from "../../src/compile/capture.ts";
import { argumentValues } from "../../src/compile/graph.ts";
import { hostCpu } from "../../src/kernels/cpu.ts";
import { encoderInputs } from "../../src/language/encoder-inputs.ts";
import { isEncoderNetwork } from "../../src/model/encoder.ts";
import { EagerBuilder } from "../../src/ops/eager.ts";
import { operators } from "../../src/registry/operators.ts";
import type { Tensor } from "../../src/tensor.ts";

/** Values of each text, given by its token ids. */
export async function eagerTexts(model: Model, texts: readonly (readonly number[])[]): Promise<Float32Array[]> {
  const { network } = model;
  if (!isEncoderNetwork(network)) throw new TypeError(`${network.architecture} reads no whole texts`);
  const source = encoderSource(model, network, {}, false);
  const builder = new EagerBuilder(operators, hostCpu());
  for (const { constant } of capture(source, operators, hostCpu()).nodes.flatMap(argumentValues))
    if (constant) await builder.load(constant);
  const { firstPosition, tokenTypes } = network;
  const inputs = encoderInputs(
    texts.map((ids) => ({ ids, secondFrom: ids.length })),
    { firstPosition, hasTypes: tokenTypes > 1 },
  );
  const data = source.build<Tensor>(builder, inputs)[0]!.data as Float32Array;
  const size = data.length / texts.length;
  return texts.map((_, i) => data.slice(i * size, (i + 1) * size));
}
