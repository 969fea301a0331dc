/** Limits of addresses in processes of their own: a plan runs or an error says what to do, and nothing ends by a signal. */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { beforeAll, expect, it } from "vitest";
import { temporaryFolder } from "../../../../test/support/folders.ts";

const script = join(await temporaryFolder(), "plan.mjs");

beforeAll(async () => {
  const contents = `
    import { WasmEngine } from "./engine.ts";
    import { addWasm } from "../elementwise.ts";
    const engine = new WasmEngine({ bytes: 1 << 16, threads: 2 });
    const floats = (value) => {
      const { buffer, byteOffset } = engine.allocate(64);
      return new Float32Array(buffer, byteOffset, 16).fill(value);
    };
    const [a, b, y] = [1, 2, 0].map(floats);
    const plan = engine.planCalls([addWasm.encode({ a, b, alpha: 2, y }, new Uint8Array(0))]);
    await plan.run(engine.abort);
    console.log(y.join());
    process.exit(0);`;
  const resolveDir = fileURLToPath(new URL(".", import.meta.url));
  await build({
    stdin: { contents, resolveDir, loader: "ts" },
    outfile: script,
    bundle: true,
    platform: "node",
    format: "esm",
  });
});

it.skipIf(process.platform !== "linux").each([2, 4, 8, 11, 12, 16, 32, 64])("%i GB", (gigabytes) => {
  const command = `ulimit -v ${gigabytes * 2 ** 20}; exec "$0" "$1"`;
  const { status, signal, stdout, stderr } = spawnSync("bash", ["-c", command, process.execPath, script], {
    encoding: "utf8",
  });
  expect(signal).toBeNull();
  if (status === 0) expect(stdout).toBe(`${new Array(16).fill(5).join()}\n`);
  else expect(stderr).toMatch(/lift the limit or run node --disable-wasm-trap-handler/);
});
