/**
 * `npm run stress:prefixes -- --kills 1000`: kills processes that share a folder of prefixes at random moments. Models:
 * attention only; recurrent layers with attention, full or with a sliding window; recurrent layers only. Fails if logits differ
 * from those without the folder, or if the folder exceeds its limit.
 */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { stressPrefixes } from "../../test/support/prefix-stress.js";

const { values } = parseArgs({
  options: { kills: { type: "string", default: "60" }, processes: { type: "string", default: "2" } },
});
const kinds = [
  { name: "attention", layers: { window: 0, isRecurrent: false } },
  { name: "attention, and a window", layers: { window: 40, isRecurrent: false } },
  { name: "attention and recurrent layers", layers: { window: 0 } },
  { name: "a window and recurrent layers", layers: { window: 40 } },
  { name: "recurrent layers", layers: { window: null } },
];
const root = mkdtempSync(join(tmpdir(), "lowbit-prefixes-"));
try {
  for (const { name, layers } of kinds) {
    const folder = join(mkdtempSync(join(root, "run-")), "prefixes");
    mkdirSync(folder);
    const kills = Math.ceil(Number(values.kills) / kinds.length);
    const options = { folder, kills, processes: Number(values.processes), bytes: 200_000, layers };
    const { answers, found, mostBytes } = await stressPrefixes(options);
    console.log(
      `${name}: ${kills} processes were killed; ${answers} prompts had the right logits, ${found} of them with a prefix from disk; ` +
        `at most ${mostBytes} of ${options.bytes} bytes`,
    );
  }
} finally {
  rmSync(root, { recursive: true, force: true });
}
