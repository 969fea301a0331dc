/** A checkpoint larger than the memory that quantizing it may take, interrupted and continued; scripts/stress/memory.js at small scale. */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, it } from "vitest";

const script = fileURLToPath(new URL("../scripts/stress/memory.js", import.meta.url));
const main = fileURLToPath(new URL("../dist/cli/main.js", import.meta.url));
const unfit =
  process.platform !== "linux"
    ? "ulimit -d counts all memory on Linux only"
    : existsSync(main)
      ? ""
      : "dist is absent: npm run build";

it.skipIf(unfit !== "")(
  `quantizes more than it may hold${unfit && ` (skipped: ${unfit})`}`,
  async () => {
    const { stdout } = await promisify(execFile)(process.execPath, [script, "--megabytes", "320", "--limit", "250"]);
    expect(stdout).toMatch(
      /^\d+ MB quantized in .* of 250 MB allowed; interrupted after \d+ MB of \d+ MB and continued\n$/,
    );
  },
  120_000,
);
