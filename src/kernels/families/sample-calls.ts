/** Sample calls of all WebAssembly kernels, for tests and printed code. */
import { argumentsFor, type Cases, writtenBy } from "../cases.ts";
import { attentionCalls } from "./attention/samples.ts";
import * as cases from "./cases.ts";
import { embeddingCalls } from "./embedding/samples.ts";
import { expertCalls } from "./experts/samples.ts";
import { linearCalls } from "./linear/samples.ts";
import { recurrentCalls } from "./recurrent/samples.ts";
import { callOf, type SampleCall } from "./sample-call.ts";
import { samplingCalls } from "./sampling/samples.ts";

/** Sample calls of the families that declare cases. */
function casesCalls(): SampleCall[] {
  return Object.values<Cases>(cases).flatMap(({ family, small }) =>
    family
      .filter(({ target }) => target === "wasm")
      .flatMap((kernel) =>
        small.map((call, i) =>
          callOf(
            kernel,
            family.at(-1)!,
            () => argumentsFor(family, call),
            (args) => writtenBy(family, args),
            `case ${i + 1}`,
          ),
        ),
      ),
  );
}

/** Sample calls of all kernels. */
export function sampleCalls(): SampleCall[] {
  return [
    ...linearCalls(),
    ...embeddingCalls(),
    ...attentionCalls(),
    ...recurrentCalls(),
    ...expertCalls(),
    ...samplingCalls(),
    ...casesCalls(),
  ];
}
