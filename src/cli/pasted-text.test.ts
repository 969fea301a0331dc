/** Texts that are pasted: told from what is typed by the terminal's marks, wherever pieces of input begin and end. */
import { PassThrough } from "node:stream";
import { text as readAll } from "node:stream/consumers";
import { expect, it } from "vitest";
import { PastedText } from "./pasted-text.ts";

const paste = (text: string) => `\x1b[200~${text}\x1b[201~`;

/** What is typed of an input that comes in pieces of so many bytes, whole, and what the terminal was told. */
async function typed(input: string, pieceBytes = 1000) {
  const [stdin, stdout] = [new PassThrough(), new PassThrough()];
  const pasted = new PastedText({ stdin, stdout });
  const bytes = Buffer.from(input);
  for (let at = 0; at < bytes.length; at += pieceBytes) stdin.write(bytes.subarray(at, at + pieceBytes));
  stdin.end();
  const line = await readAll(pasted);
  pasted.close();
  stdout.end();
  return { line, whole: pasted.whole(line), told: await readAll(stdout) };
}

it.each([1, 2, 3, 5, 8, 1000])("of several lines are one text, in pieces of %i bytes", async (size) => {
  const { line, whole, told } = await typed(`Read: ${paste("first\r\nsecond é\rthird\n")} Thanks\x1b[A`, size);
  expect(line).toBe("Read: [3 lines pasted] Thanks\x1b[A");
  expect(whole).toBe("Read: first\nsecond é\nthird\n Thanks\x1b[A");
  expect(told).toBe("\x1b[?2004h\x1b[?2004l");
});

it("of one line are as if they were typed, without what would steer the terminal", async () => {
  expect((await typed(`a${paste("\x1b[31mb\tc\n")}d`)).line).toBe("a[31mb  cd");
});

it("are told apart, though they have equally many lines", async () => {
  const { line, whole } = await typed(paste("a\nb") + paste("$&\nd"));
  expect(line).toBe("[2 lines pasted][2 lines pasted, 2]");
  expect(whole).toBe("a\nb$&\nd");
});

it("end at a Ctrl-C, or with the input, where the mark is lost", async () => {
  expect((await typed("\x1b[200~a\nb\x03c")).line).toBe("[2 lines pasted]\x03c");
  expect((await typed("\x1b[200~a\nb")).whole).toBe("a\nb");
});
