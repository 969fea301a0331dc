/** Exported programs have tables of their tokenizer, which serve as long as its tokenizer.json is the one they are of. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { openFile } from "../node-file.ts";
import { readProgram } from "../program/read.ts";
import { saveProgram } from "../program/save.ts";
import { exportProgram } from "./export-program.ts";
import { loadProgram } from "./load-program.ts";
import { storedTokenizer } from "./tokenizer-tables.ts";

const vocab = Object.fromEntries([..."abcdefghijklmnopqrstuvwxyz "].map((letter, id) => [letter, id]));
const tokenizerFile = { model: { type: "BPE", vocab: { ...vocab, th: 27, the: 28 }, merges: ["t h", "th e"] } };

test("they serve, and a changed tokenizer.json is read in their place", async () => {
  const folder = await temporaryFolder();
  const [path, changed] = [join(folder, "tiny.pte"), join(folder, "changed.pte")];
  await writeTinyCheckpoint(join(folder, "tiny"));
  writeFileSync(join(folder, "tiny", "tokenizer.json"), JSON.stringify(tokenizerFile));
  const model = await loadCheckpoint(join(folder, "tiny"));
  await exportProgram(model, path).finally(() => model.close());
  const source = await openFile(path);
  try {
    const program = await readProgram(source);
    expect([...program.namedData.keys()]).toContain("tokenizer.tables");
    expect(await storedTokenizer(program, path)).toMatchObject({ model: { type: "BPE" } });
    const text = new TextEncoder().encode(
      JSON.stringify(tokenizerFile).replace("th e", "h e").replace('"the":28', '"he":28'),
    );
    const namedData = new Map(program.namedData).set("tokenizer.json", {
      byteLength: text.length,
      read: async () => text,
    });
    await saveProgram({ ...program, namedData }, changed);
    expect(await storedTokenizer({ ...program, namedData }, changed)).toBeNull();
  } finally {
    await source.close();
  }
  const idsOf = async (file: string) => {
    const llm = await loadProgram(file);
    const ids = llm.tokenizer.encode("the he");
    await llm.dispose();
    return ids;
  };
  expect(await idsOf(path)).toEqual([28, 26, 7, 4]);
  expect(await idsOf(changed)).toEqual([27, 4, 26, 28]);
});

test("a program that they would make much larger has none", async () => {
  const folder = await temporaryFolder();
  const many = Object.fromEntries(Array.from({ length: 40_000 }, (_, i) => [`t${i}`, i + 29]));
  const large = { model: { ...tokenizerFile.model, vocab: { ...tokenizerFile.model.vocab, ...many } } };
  await writeTinyCheckpoint(join(folder, "tiny"));
  writeFileSync(join(folder, "tiny", "tokenizer.json"), JSON.stringify(large));
  const model = await loadCheckpoint(join(folder, "tiny"));
  const path = join(folder, "tiny.pte");
  await exportProgram(model, path).finally(() => model.close());
  const source = await openFile(path);
  const { namedData } = await readProgram(source).finally(() => source.close());
  expect([...namedData.keys()]).toContain("tokenizer.json");
  expect([...namedData.keys()]).not.toContain("tokenizer.tables");
});
