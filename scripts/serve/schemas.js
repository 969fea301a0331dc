/**
 * `npm run test:schemas [-- --count 1000 --from 0]`: the demo model writes an answer to each of a thousand random schemas;
 * every one must parse, and another library's validator must accept it. Then the constraint must allow, token by token, all
 * valid values of `--values`, a file that `scripts/goldens/schema-goldens.py` writes (default: the one beside the tests), and
 * none of the invalid ones: `python scripts/goldens/schema-goldens.py --count 1000 --seed 5 --out build/schemas.json` makes
 * more. Texts of `--grammars`, a file of `scripts/goldens/grammar-goldens.py`, are tested likewise.
 */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Ajv2020 } from "ajv/dist/2020.js";
import { loadCheckpoint, loadCompiled, UnsupportedError } from "../../dist/index.js";
import { createMatcher } from "../../dist/text/constraints/index.js";
import { Tokenizer } from "../../dist/text/tokenizer.js";
import { schemaOf } from "../../test/support/random-schema.js";

const root = new URL("../..", import.meta.url);
const { values: options } = parseArgs({
  options: {
    count: { type: "string", default: "1000" },
    from: { type: "string", default: "0" },
    values: { type: "string", default: fileURLToPath(new URL("src/text/constraints/schemas.json.golden", root)) },
    grammars: { type: "string", default: fileURLToPath(new URL("src/text/constraints/grammars.json.golden", root)) },
  },
});

const checkpoint = await loadCheckpoint(fileURLToPath(new URL("models/shakespeare", root)));
const llm = await loadCompiled(checkpoint);
await checkpoint.close();
const counts = { valid: 0, refused: 0, cut: 0, tokens: 0 };
const failures = [];
const [from, count] = [Number(options.from), Number(options.count)];
const started = performance.now();
for (let seed = from; seed < from + count; seed++) {
  const schema = schemaOf(seed);
  const generation = llm.generate("JSON: ", { schema, temperature: 0.9, seed, maxTokens: 500 });
  let text = "";
  try {
    for await (const piece of generation) text += piece;
  } catch (error) {
    if (!(error instanceof UnsupportedError))
      throw new Error(`seed ${seed}, ${JSON.stringify(schema)}`, { cause: error });
    counts.refused++;
    continue;
  }
  const { generatedTokens, finishReason } = await generation.result;
  counts.tokens += generatedTokens;
  if (finishReason === "length") {
    counts.cut++;
    continue;
  }
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  const validate = ajv.compile(schema);
  let isValid = false;
  try {
    isValid = validate(JSON.parse(text));
  } catch {
    // Counted below.
  }
  if (isValid) counts.valid++;
  else failures.push(`seed ${seed}: ${JSON.stringify(schema)}\n  ${text}\n  ${ajv.errorsText(validate.errors)}`);
  if ((seed - from + 1) % 50 === 0)
    console.log(
      `${seed - from + 1} of ${count}, ${failures.length} wrong, ${((performance.now() - started) / 1000).toFixed(0)} s`,
    );
}
await llm.dispose();
console.log(
  `${counts.valid} of ${count} answers parse and validate; ${counts.refused} schemas were refused, ${counts.cut} answers cut at 500 tokens, ${failures.length} wrong; ${counts.tokens} tokens`,
);

const bytes = JSON.parse(readFileSync(new URL("src/text/byte-level-tokenizer.json.golden", root), "utf8"));
const tokenizer = new Tokenizer(bytes, { eos_token: "<|end|>" });
const end = /** @type {{ id: number }} */ (tokenizer.eos).id;
const vocabulary = { tokenizer, size: tokenizer.vocabSize, endIds: [end] };

/**
 * Whether a text can be written token by token.
 * @param {import("../../dist/index.js").Constraint} constraint @param {string} text
 */
async function isWritten(constraint, text) {
  const matcher = await createMatcher(constraint, vocabulary);
  try {
    for (const id of [...tokenizer.encode(text, { addSpecialTokens: false }), end]) {
      const mask = await matcher.mask();
      if (!(/** @type {number} */ ((mask[id >>> 5] >>> (id & 31)) & 1)) || !matcher.allows(id)) return false;
      matcher.accept(id);
    }
    return true;
  } finally {
    matcher.dispose();
  }
}

/**
 * Writes the texts of a constraint, and tries to write others.
 * @param {import("../../dist/index.js").Constraint} constraint @param {{ valid: string[], invalid: string[] }} texts
 */
async function writeTexts(constraint, { valid, invalid }) {
  for (const [texts, isOf] of /** @type {const} */ ([
    [valid, true],
    [invalid, false],
  ]))
    for (const text of texts) {
      const isSame = (await isWritten(constraint, text)) === isOf;
      if (!isSame) failures.push(`${isOf ? "cannot" : "can"} be written: ${text}\n  ${JSON.stringify(constraint)}`);
    }
  return valid.length + invalid.length;
}

const casesOf = (/** @type {string} */ file) => JSON.parse(readFileSync(file, "utf8")).cases;
let [values, refused] = [0, 0];
for (const { schema, valid, invalid } of casesOf(options.values)) {
  // What has no value is refused.
  if (valid.length === 0) continue;
  // Larger multiples than floating point tells apart are left out.
  const isLeftOut = (/** @type {string} */ text) =>
    JSON.stringify(schema).includes("multipleOf") && /\d{16}|e\+/.test(text);
  const written = valid.filter((/** @type {string} */ text) => !isLeftOut(text));
  try {
    values += await writeTexts({ kind: "jsonSchema", schema }, { valid: written, invalid });
  } catch (error) {
    if (!(error instanceof UnsupportedError)) throw new Error(JSON.stringify(schema), { cause: error });
    refused++;
  }
}
console.log(
  `${values} values of ${options.values} were written token by token, or not; ${refused} schemas were refused`,
);
let [texts, ambiguous] = [0, 0];
for (const { ebnf, ...own } of casesOf(options.grammars))
  try {
    texts += await writeTexts({ kind: "grammar", ebnf }, own);
  } catch (error) {
    if (!(error instanceof UnsupportedError)) throw error;
    ambiguous++;
  }
console.log(
  `${texts} texts of ${options.grammars} likewise; ${ambiguous} grammars read a text in too many ways at once`,
);
for (const failure of failures) console.error(failure);
if (failures.length > 0) process.exitCode = 1;
