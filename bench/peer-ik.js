/**
 * ik_llama.cpp as an engine of compare.js: each request is a run of its `llama-bench` on the GGUF file, which reads the model
 * anew; its own figures, in tokens a second, leave loading out.
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

/** The program llama-bench of a folder that ik_llama.cpp was built in. Error naming where it was looked for. */
export function ikBenchOf(folder) {
  if (folder === undefined) throw new Error("part ik: give the folder in which ik_llama.cpp was built: --ik <folder>");
  const places = ["build/bin", "bin", "."].map((place) => join(folder, place, "llama-bench"));
  const found = places.find((place) => existsSync(place));
  if (!found) throw new Error(`--ik ${folder}: expected llama-bench but found none of ${places.join(", ")}`);
  return found;
}

/**
 * Seconds of a prompt of so many tokens, or of so many decoded, as llama-bench measures them.
 * @param {{ program: string, path: string, threads: number }} engine @param {{ what: string, tokens: number }} request
 */
export async function ikSeconds({ program, path, threads }, { what, tokens }) {
  const counts = what === "prefill" ? { "-p": tokens, "-n": 0 } : { "-p": 0, "-n": tokens };
  // Its README advises to interleave rows of weights at loading, for CPUs.
  const settings = { "-m": path, "-t": threads, "-r": 1, "-o": "json", "-rtr": 1, ...counts };
  const { stdout } = await promisify(execFile)(program, Object.entries(settings).flat().map(String), {
    maxBuffer: 1 << 24,
  });
  const rate = JSON.parse(stdout.slice(stdout.indexOf("[")))[0]?.avg_ts;
  if (!(rate > 0)) throw new Error(`${program}: expected avg_ts, tokens a second, but found ${stdout.slice(0, 500)}`);
  return tokens / rate;
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const engine = JSON.parse(process.argv[2]);
  process.on("message", async (/** @type {any} */ request) => {
    try {
      process.send({ value: await ikSeconds(engine, request) });
    } catch (error) {
      process.send({ error: String(error.stack) });
    }
  });
  process.send({ value: {} });
}
