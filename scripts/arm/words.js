/** Checks instructions that native/arm writes as words, for assemblers that do not know them, against their comments. */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { nativeFolder } from "../native/sources.js";

const file = join(nativeFolder, "arm", "streaming.h");

/** The words and meanings of a source: `.inst 0x04bf5820  // rdsvl x0, #1`. @param {string} source */
const wordsOf = (source) =>
  Array.from(source.matchAll(/\.inst (0x[0-9a-f]{8}) {2}\/\/ (.*?)(?:\\n.*)?$/gm), ([, word, meaning]) => ({
    word: Number(word),
    meaning,
  }));

/** Assembles what is said of each word; throws for the first that is another. @param {number} llvm version of llvm-mc */
export function checkWords(llvm) {
  const words = wordsOf(readFileSync(file, "utf8"));
  const flags = ["-triple=aarch64", "-mattr=+sme2,+sve2p1", "--show-encoding"];
  const input = words.map(({ meaning }) => `${meaning}\n`).join("");
  const { stdout, stderr } = spawnSync(`llvm-mc-${llvm}`, flags, { input, encoding: "utf8" });
  const assembled = Array.from(stdout.matchAll(/encoding: \[(.*?)\]/g), ([, bytes]) =>
    bytes.split(",").reduceRight((word, byte) => word * 256 + Number(byte), 0),
  );
  if (assembled.length !== words.length)
    throw new Error(`${file}: expected ${words.length} instructions but llvm-mc took ${assembled.length}: ${stderr}`);
  const wrong = words.findIndex(({ word }, i) => word !== assembled[i]);
  if (wrong >= 0) {
    const { word, meaning } = words[wrong];
    throw new Error(
      `${file}: ${meaning}: expected 0x${assembled[wrong].toString(16)} but found 0x${word.toString(16)}`,
    );
  }
}
