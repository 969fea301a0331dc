/**
 * `npm run test:schemas [-- --count 1000 --from 0]`: the demo model writes an answer to each of a thousand random schemas;
 * every one must parse, and be what another library's validator accepts.
 */
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Ajv2020 } from "ajv/dist/2020.js";
import { loadCheckpoint, loadCompiled, UnsupportedError } from "../dist/index.js";
import { schemaOf } from "../test/support/random-schema.js";

const { values: options } = parseArgs({
  options: { count: { type: "string", default: "1000" }, from: { type: "string", default: "0" } },
});

const checkpoint = await loadCheckpoint(fileURLToPath(new URL("../models/shakespeare", import.meta.url)));
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
  counts.tokens += generation.result?.generatedTokens ?? 0;
  if (generation.result?.finishReason === "length") {
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
for (const failure of failures) console.error(failure);
if (failures.length > 0) process.exitCode = 1;
