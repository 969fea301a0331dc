/** The programs that are compared: two models, quantized in several ways, written with `--target executorch`. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { encodeAqlm } from "../../dist/aqlm/index.js";
import {
  embedding,
  exportProgram,
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  makeRecipe,
  quantize,
  quantizeByRecipe,
  sharedEmbedding,
} from "../../dist/index.js";
import { root } from "../native/sources.js";

const perToken = { activationGranularity: "per_token" };
const eightBit = (bits) => int8DynamicActivationIntxWeight({ bits, groupSize: 32, ...perToken });
/** Codes stand for 8 inputs: layers of other sizes have 4-bit weights. */
const skip = (name) => name.endsWith("down_proj.weight");
const fourBitDown = makeRecipe([["re:.*down_proj", eightBit(4)]]);

/**
 * Name → how the weights of a model become quantized, and whether ExecuTorch's wheel has all operators that the program
 * then has: others need our library.
 * @type {Record<string, { stock: boolean, apply: (model: object, name: string, folder: string) => void | Promise<void> }>}
 */
export const schemes = {
  float: { stock: true, apply: () => {} },
  "float, 4-bit embedding": {
    stock: true,
    apply: (model) => quantize(model, [embedding({ bits: 4, groupSize: 32 })]),
  },
  "8da4w": { stock: false, apply: (model) => quantize(model, [eightBit(4)]) },
  "8da2w": { stock: false, apply: (model) => quantize(model, [eightBit(2)]) },
  "8da4w, tied embedding": {
    stock: false,
    apply: (model) => quantize(model, [eightBit(4), sharedEmbedding({ bits: 4, groupSize: 32, ...perToken })]),
  },
  "aqlm 2x8": {
    stock: false,
    apply: async (model, name, folder) => {
      const odd = name === "stories260K";
      await encodeAqlm(model, { codebooks: 2, bits: 8, folder: join(folder, `aqlm-${name}`), ...(odd && { skip }) });
      if (odd) quantizeByRecipe(model, fourBitDown);
    },
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
 * Programs tested by `npm run test:executorch -- --short`, by model: one that ExecuTorch runs alone, one that needs our
 * library, and one that needs AQLM's kernels in it.
 */
const short = { shakespeare: ["float", "8da4w", "aqlm 2x8"] };

/** Names of models and of ways to quantize them. @param {boolean} isShort */
export function programNames(isShort) {
  const schemesOf = isShort ? short : Object.fromEntries(models.map(({ name }) => [name, Object.keys(schemes)]));
  return Object.entries(schemesOf).flatMap(([name, list]) => list.map((scheme) => ({ name, scheme })));
}

/**
 * Writes the programs and describes them. A model that is not here is left out, with a message.
 * @param {string} folder @param {boolean} isShort
 */
export async function writePrograms(folder, isShort) {
  const programs = [];
  for (const { name, scheme } of programNames(isShort)) {
    const source = models.find((model) => model.name === name);
    if (!existsSync(source.folder)) {
      console.log(`${name}, ${scheme}: left out, ${source.folder} is not there`);
      continue;
    }
    const model = await loadCheckpoint(source.folder);
    const { apply, stock } = schemes[scheme];
    await apply(model, name, folder);
    const file = join(folder, `${name}-${scheme.replaceAll(/\W+/g, "-")}.pte`);
    await exportProgram(model, file, { target: "executorch" });
    programs.push({ ...source, scheme, stock, file, tokenizer: join(source.folder, "tokenizer.json") });
    await model.close();
  }
  return programs;
}
