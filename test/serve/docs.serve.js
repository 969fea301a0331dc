/** The programs of docs/ai-sdk.md and docs/serve.md, as they stand there, against the server and the model of the tests. */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterAll, expect, inject, it } from "vitest";
import { run } from "./process.js";

const dist = new URL("../../dist/", import.meta.url).href;
const files = [];
afterAll(() => {
  for (const file of files) rmSync(file, { force: true });
});

const programs = ["ai-sdk", "serve"].flatMap((page) => {
  const text = readFileSync(new URL(`../../docs/${page}.md`, import.meta.url), "utf8");
  return [...text.matchAll(/^```js\n(.*?)^```$/gms)].map(([, code], i) => ({ name: `${page}-${i + 1}`, code }));
});

it("are all there", () => expect(programs.length).toBeGreaterThanOrEqual(7));

it.each(programs)("$name runs", async ({ name, code }) => {
  const program = code
    .replaceAll("http://127.0.0.1:8080", inject("url"))
    .replaceAll('apiKey: "none"', `apiKey: ${JSON.stringify(inject("key"))}`)
    .replaceAll('"llama"', '"demo"')
    .replaceAll('"llama.pte"', JSON.stringify(inject("program")))
    .replaceAll('"lowbit/ai-sdk"', JSON.stringify(`${dist}ai-sdk/index.js`))
    .replaceAll('"lowbit"', (quoted, place, all) =>
      all.slice(0, place).endsWith("from ") ? JSON.stringify(`${dist}index.js`) : quoted,
    );
  // Beside the clients that are installed here.
  const file = fileURLToPath(new URL(`docs-${name}.mjs`, import.meta.url));
  files.push(file);
  writeFileSync(file, program);
  const { code: status, output } = await run(process.execPath, [file]);
  expect(output.trim()).not.toBe("");
  expect([status, output]).toEqual([0, output]);
});
