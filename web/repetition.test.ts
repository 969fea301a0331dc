/** Which answers count as repeating themselves. */
import { expect, test } from "vitest";
import { isRepeating } from "./repetition.ts";

test.each([
  ["a word", "no ".repeat(300), true],
  ["a sentence, after others", `Once upon a time. ${"And then he went to the sea, and saw a ship. ".repeat(25)}`, true],
  ["a sentence that is cut", `${"And then he went to the sea, and saw a ship. ".repeat(25)}And then he w`, true],
  ["a line of dashes", "-".repeat(120), false],
  ["few times", "And then he went to the sea, and saw a ship. ".repeat(5), false],
  ["numbers that grow", Array.from({ length: 2000 }, (_, i) => i).join(" "), false],
  ["a table of like rows", Array.from({ length: 200 }, (_, i) => `| ${i} | yes | no |\n`).join(""), false],
  ["nothing", "", false],
])("%s", (_, text, expected) => expect(isRepeating(text)).toBe(expected));
