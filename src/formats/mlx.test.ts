/** Matrices that MLX itself quantized (mlx.json.golden) against the values that it gives them. */
import { readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { type Entry, MODULE, writeModule } from "../../test/support/quantized-modules.ts";
import { toFloat32 } from "../tensor.ts";
import { openCheckpoint } from "./checkpoint.ts";

interface Golden {
  readonly settings: { readonly mode: string; readonly bits: number; readonly group_size: number };
  readonly tensors: Readonly<
    Record<string, { readonly dtype: string; readonly shape: number[]; readonly data: string }>
  >;
  readonly values: string;
}

const goldens = JSON.parse(readFileSync(new URL("mlx.json.golden", import.meta.url), "utf8")) as Golden[];
const bytesOf = (text: string) => new Uint8Array(Buffer.from(text, "base64"));
const folder = await temporaryFolder();

it.each(goldens.map((golden) => [JSON.stringify(golden.settings), golden] as const))(
  "has MLX's values of %s",
  async (title, { settings, tensors, values }) => {
    const path = join(folder, title.replace(/\W/g, ""));
    const entries = Object.entries(tensors).map(([name, { dtype, shape, data }]): [string, Entry] => [
      name,
      { dtype, shape, data: bytesOf(data) },
    ]);
    await mkdir(path);
    await writeModule(path, new Map(entries), {});
    await writeFile(join(path, "config.json"), JSON.stringify({ quantization: settings }));
    const checkpoint = await openCheckpoint(path);
    const found = toFloat32(await checkpoint.tensors.read(`${MODULE}.weight`));
    const expected = new Float32Array(bytesOf(values).buffer);
    expect(found.length).toBe(expected.length);
    // Its product and sum of integers are rounded once.
    const bound = settings.mode === "affine" ? 2 ** -23 : 0;
    for (const [i, value] of expected.entries()) expect(Math.abs(found[i]! - value)).toBeLessThanOrEqual(bound);
    expect(checkpoint.tensors.lowBit!(`${MODULE}.weight`) === null).toBe(settings.mode === "mxfp8");
    await checkpoint.close();
  },
);
