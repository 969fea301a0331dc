/** The programs that are compared: two models, five ways to quantize them, our own form and ExecuTorch's. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import {
  encodeAqlm,
  exportProgram,
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  makeRecipe,
  quantize,
  quantizeByRecipe,
  sharedEmbedding,
} from "../../dist/index.js";
import { root } from "../native-sources.js";

const perToken = { activationGranularity: "per_token" };
const eightBit = (bits) => int8DynamicActivationIntxWeight({ bits, groupSize: 32, ...perToken });
/** Codes stand for 8 inputs: layers of other sizes have 4-bit weights. */
const skip = (name) => name.endsWith("down_proj.weight");
const fourBitDown = makeRecipe([["re:.*down_proj", eightBit(4)]]);

/** Name → how the weights of a model become quantized. */
export const schemes = {
  float: () => {},
  "8da4w": (model) => quantize(model, [eightBit(4)]),
  "8da2w": (model) => quantize(model, [eightBit(2)]),
  "8da4w, tied embedding": (model) => quantize(model, [eightBit(4), sharedEmbedding({ bits: 4, groupSize: 32, ...perToken })]),
  "aqlm 2x8": async (model, name, folder) => {
    const odd = name === "stories260K";
    await encodeAqlm(model, { codebooks: 2, bits: 8, folder: join(folder, `aqlm-${name}`), ...(odd && { skip }) });
    if (odd) quantizeByRecipe(model, fourBitDown);
  },
};

const models = [
  {
    name: "stories260K",
    folder: join(root, "..", "shared", "models", "stories260K"),
    prompt: "Once upon a time, there was a little girl named Lily.",
    // Its decoder strips a space before a piece, which the runner decodes one by one.
    spaces: false,
    bos: 1,
  },
  {
    name: "shakespeare",
    folder: join(root, "models", "shakespeare"),
    prompt: "KING RICHARD III:",
    spaces: true,
    bos: 0,
  },
];

/**
 * Writes the programs and describes them. A model that is not here is left out, with a message.
 * @param {string} folder
 */
export async function writePrograms(folder) {
  const programs = [];
  for (const source of models) {
    if (!existsSync(source.folder)) {
      console.log(`${source.name}: left out, ${source.folder} is not there`);
      continue;
    }
    for (const [scheme, apply] of Object.entries(schemes)) {
      const model = await loadCheckpoint(source.folder);
      await apply(model, source.name, folder);
      for (const target of ["lowbit", "executorch"]) {
        const file = join(folder, `${source.name}-${scheme.replaceAll(/\W+/g, "-")}-${target}.pte`);
        await exportProgram(model, file, { target });
        programs.push({ ...source, scheme, target, file, tokenizer: join(source.folder, "tokenizer.json") });
      }
      await model.close();
    }
  }
  return programs;
}
