/** The demo model's answers to some random schemas parse and validate; `npm run test:schemas` has a thousand. */
import { fileURLToPath } from "node:url";
import { Ajv2020 } from "ajv/dist/2020.js";
import { expect, it } from "vitest";
import { loadCheckpoint, loadCompiled } from "../src/index.ts";
import { schemaOf } from "./support/random-schema.js";

it("random schemas hold the demo model's answers", async () => {
  const checkpoint = await loadCheckpoint(fileURLToPath(new URL("../models/shakespeare", import.meta.url)));
  const llm = await loadCompiled(checkpoint);
  await checkpoint.close();
  let whole = 0;
  for (let seed = 0; seed < 20; seed++) {
    const schema = schemaOf(seed);
    const generation = llm.generate("JSON: ", { schema, temperature: 0.9, seed, maxTokens: 400 });
    let text = "";
    for await (const piece of generation) text += piece;
    if ((await generation.result).finishReason === "length") continue;
    whole++;
    const ajv = new Ajv2020({ strict: false, validateFormats: false });
    const value = await generation.value;
    expect(ajv.validate(schema, value), `${JSON.stringify(schema)}: ${text}: ${ajv.errorsText()}`).toBe(true);
    expect(JSON.parse(text)).toEqual(value);
  }
  await llm.dispose();
  expect(whole).toBeGreaterThan(15);
});
