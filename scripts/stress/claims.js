/**
 * `npm run stress:claims -- --seconds 600`: kills processes that write one path at random moments, first as they are, then in
 * process namespaces of their own as containers have them (which needs root). Fails if the path has a mix of two files, or if a
 * claim has two holders.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { stressClaims } from "../../test/support/claim-stress.js";

const { values } = parseArgs({
  options: { seconds: { type: "string", default: "60" }, processes: { type: "string", default: "4" } },
});
const folder = mkdtempSync(join(tmpdir(), "lowbit-claims-"));
try {
  for (const isNamespaced of [false, true]) {
    const own = mkdtempSync(join(folder, "run-"));
    const [seconds, processes] = [Number(values.seconds) / 2, Number(values.processes)];
    const { kills, looks, turns } = await stressClaims({ folder: own, seconds, processes, isNamespaced });
    const where = isNamespaced ? "in namespaces of their own" : "on one machine";
    console.log(
      `${kills} processes ${where} were killed: the file was whole ${looks} times, a claim held ${turns} times`,
    );
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
