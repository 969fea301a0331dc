/** The engine of constraints in processes with a limit of addresses: it starts, or an error says what to do. */
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeAll, expect, it } from "vitest";
import { bundleScript, runLimited } from "../../../test/support/address-limit.ts";
import { temporaryFolder } from "../../../test/support/folders.ts";

// Beside the package that it loads.
const root = fileURLToPath(new URL("../../../", import.meta.url));
const script = join(await temporaryFolder(), "engine.mjs");

beforeAll(async () => {
  const contents = `
    import { startEngine } from "./engine.ts";
    const vocabulary = { bytes: ["a", "b"], size: 2, endIds: [1], keptGrammars: 1 };
    try {
      const engine = await startEngine(vocabulary);
      const { mask } = await engine.ask({ text: 0, grammar: 'root ::= "a"', taken: [], hasMask: true, dropped: [] });
      console.log(mask[0] & 3);
      engine.end();
    } catch (error) {
      console.log(error.message);
    }`;
  const resolveDir = fileURLToPath(new URL(".", import.meta.url));
  await bundleScript(contents, resolveDir, script, {
    external: ["@mlc-ai/web-xgrammar"],
    define: { "import.meta.url": JSON.stringify(`file://${root}src/x.js`) },
  });
});

it.skipIf(process.platform !== "linux").each([
  [4, "", /^constraints: need 10 GB of addresses .*; raise the limit \(ulimit -v\), or start Node with/],
  [4, "--disable-wasm-trap-handler", /^1\n/],
  [64, "", /^1\n/],
])("%i GB %s", (gigabytes, flag, expected) => {
  const { signal, stdout, stderr } = runLimited(script, gigabytes, flag);
  expect(signal).toBeNull();
  expect(stdout).toMatch(expected);
  expect(stderr).toBe("");
});
