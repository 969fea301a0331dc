import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../test/support/folders.ts";
import { writeTinyCheckpoint } from "../test/support/tiny-checkpoint.ts";
import { memorySource } from "./byte-source.ts";
import { InvalidFileError } from "./errors.ts";
import { openCheckpoint } from "./formats/checkpoint.ts";
import { checkNoPointer } from "./git-lfs.ts";
import { openFile } from "./node-file.ts";

const folder = await temporaryFolder();
const pointer = `version https://git-lfs.github.com/spec/v1\noid sha256:${"ab".repeat(32)}\nsize 5135149760\n`;
const message = /Git LFS pointer to a file of 5135149760 bytes that was not downloaded; run "git lfs pull"/;

it.each(["model.safetensors", "config.json", "tokenizer.json", "generation_config.json", "chat_template.jinja"])(
  "says that %s of a checkpoint is a pointer",
  async (name) => {
    const path = join(folder, name);
    await writeTinyCheckpoint(path);
    await writeFile(join(path, name), pointer);
    const opened = openCheckpoint(path);
    await expect(opened).rejects.toThrow(message);
    await expect(opened).rejects.toThrow(InvalidFileError);
    await expect(opened).rejects.toThrow(join(path, name));
  },
);

it.each(["a.gguf", "a.pte", "a.bin", "a.pth"])("says it of %s", async (name) => {
  await writeFile(join(folder, name), pointer);
  await expect(openFile(join(folder, name))).rejects.toThrow(message);
});

it("leaves other small files, and large ones that begin so, alone", async () => {
  for (const text of ["version https://git", `${pointer}${" ".repeat(2000)}`, ""])
    await expect(checkNoPointer(memorySource("x", new TextEncoder().encode(text)))).resolves.toBeUndefined();
});
