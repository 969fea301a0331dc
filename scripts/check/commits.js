/**
 * Checks subjects of commits since the rule was made: at most 72 characters and one change each, so no ";". Without a
 * repository, or with only a part of its history, nothing is checked.
 */
import { execFileSync } from "node:child_process";
import { root } from "../native/sources.js";

/** The last commit before the rule. */
const BASE = "f3c317c8c15e16d2f41a7efcdfbb5704c050c244";
const SUBJECT_MAX = 72;

/** Lines that git prints; none where it cannot. @param {string[]} args */
function git(...args) {
  try {
    const text = execFileSync("git", args, { cwd: root, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
    return text.split("\n").filter(Boolean);
  } catch {
    return [];
  }
}

const problems = git("log", "--no-merges", "--format=%h %s", `${BASE}..HEAD`).flatMap((line) => {
  const [, hash, subject] = /^(\S+) (.*)$/.exec(line) ?? [];
  const found = [];
  if (subject.length > SUBJECT_MAX)
    found.push(`expected at most ${SUBJECT_MAX} characters but found ${subject.length}`);
  if (subject.includes(";")) found.push('expected one change but found ";"');
  return found.map((problem) => `${hash} "${subject}": ${problem}`);
});
for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exit(1);
