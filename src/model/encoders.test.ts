/** The class of a config.json that names none, which transformers chooses by its type. */
import { expect, it } from "vitest";
import { architectures } from "./architectures.ts";
import { encoders, withArchitecture } from "./encoders.ts";

it.each([...architectures, ...encoders].map(({ name, modelType }) => [modelType, name]))("%s is %s", (type, name) => {
  for (const none of [undefined, null, []])
    expect(withArchitecture({ architectures: none, model_type: type })).toEqual({
      ...{ architectures: [name], model_type: type },
    });
});

it("is as it is where it says one, or has an unknown type", () => {
  for (const config of [
    { architectures: ["Other"], model_type: "llama" },
    { architectures: "LlamaForCausalLM", model_type: "llama" },
    { architectures: null, model_type: "gpt2" },
    {},
  ])
    expect(withArchitecture(config)).toBe(config);
});
