/** Limits of addresses in processes of their own: a plan runs or an error says what to do, and nothing ends by a signal. */
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeAll, expect, it } from "vitest";
import { bundleScript, runLimited } from "../../../../test/support/address-limit.ts";
import { temporaryFolder } from "../../../../test/support/folders.ts";

const script = join(await temporaryFolder(), "plan.mjs");

beforeAll(async () => {
  const contents = `
    import { WasmEngine } from "./engine.ts";
    import { add } from "../../families/elementwise/add.ts";
    const engine = new WasmEngine({ bytes: 1 << 16, threads: 2 });
    const floats = (value) => {
      const { buffer, byteOffset } = engine.allocate(64);
      return new Float32Array(buffer, byteOffset, 16).fill(value);
    };
    const [a, b, y] = [1, 2, 0].map(floats);
    const kernel = add.find(({ target }) => target === "wasm");
    const plan = engine.planCalls([kernel.encode({ count: 16, a, b, alpha: 2, y }, new Uint8Array(0))]);
    await plan.run(engine.abort);
    console.log(y.join());
    process.exit(0);`;
  const resolveDir = fileURLToPath(new URL(".", import.meta.url));
  await bundleScript(contents, resolveDir, script);
});

it.skipIf(process.platform !== "linux").each([2, 4, 8, 11, 12, 16, 32, 64])("%i GB", (gigabytes) => {
  const { status, signal, stdout, stderr } = runLimited(script, gigabytes);
  expect(signal).toBeNull();
  if (status === 0) expect(stdout).toBe(`${new Array(16).fill(5).join()}\n`);
  else expect(stderr).toMatch(/lift the limit or run node --disable-wasm-trap-handler/);
});
