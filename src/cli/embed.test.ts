/** `lowbit embed` on the tiny model. */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { lowbit } from "../../test/support/command-line.ts";
import { temporaryFolder } from "../../test/support/folders.ts";
import { goldenFolder, goldenItems } from "../../test/support/text-models.ts";

describe("embed", () => {
  const folder = goldenFolder("bert-bge");

  it("prints a line for each text of the arguments and of a file", async () => {
    const items = goldenItems("bert-bge").slice(0, 3);
    const [first, ...rest] = items.map(({ text }) => text);
    const stdin = `${rest.join("\n")}\n\n`;
    const { code, stdout } = await lowbit(["embed", folder, first!, "--file", "-"], { stdin });
    expect(code).toBe(0);
    const lines = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(lines).toHaveLength(3);
    for (const [i, { embedding, input_ids: ids }] of items.entries()) {
      expect([lines[i].index, lines[i].tokens]).toEqual([i, ids.length]);
      for (const [c, value] of embedding.entries()) expect(lines[i].embedding[c]).toBeCloseTo(value, 4);
    }
  });

  it("modes have zero points and rows of 8 bits where nothing else is said", async () => {
    const found = async (...options: string[]) => {
      const path = join(await temporaryFolder(), "model.pte");
      expect((await lowbit(["quantize", folder, "-o", path, ...options])).code).toBe(0);
      return JSON.parse((await lowbit(["embed", path, "Light makes food."])).stdout).embedding;
    };
    const given = ["--mapping-type", "asymmetric", "--embedding", "8,32"];
    const least = await found("--qmode", "8da4w");
    expect(least).toEqual(await found("--qmode", "8da4w", ...given));
    for (const other of [
      ["--mapping-type", "symmetric"],
      ["--embedding", "2,32"],
      ["--algorithm", "hqq_scale_only"],
    ])
      expect(await found("--qmode", "8da4w", ...other), other.join(" ")).not.toEqual(least);
  });

  it("says what is wrong", async () => {
    expect(await lowbit(["embed", folder])).toMatchObject({ code: 2, stderr: expect.stringContaining("give texts") });
    const unknown = await lowbit(["embed", folder, "a", "--prompt", "query"]);
    expect(unknown).toMatchObject({ code: 1, stderr: expect.stringContaining("the model has no prompts") });
    const long = await lowbit(["embed", folder, "light ".repeat(100)]);
    expect(long).toMatchObject({ code: 1, stderr: expect.stringContaining("at most 64 tokens") });
    expect((await lowbit(["embed", folder, "light ".repeat(100), "--truncate", "--dimensions", "4"])).code).toBe(0);
  });
});
