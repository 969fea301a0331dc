/** Servers and other programs as processes of a test. */
import { spawn } from "node:child_process";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";

export const main = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));
const KEY = "sk-of-the-test";

/** Starts `lowbit serve` and waits until it is ready. @param {string[]} argv @param {Record<string, string>} more */
export async function startServer(argv, more = {}) {
  const env = { ...process.env, LOWBIT_API_KEYS: `${KEY} manage`, ...more };
  const child = spawn(process.execPath, [main, "serve", "--port", "0", ...argv], { env });
  let stderr = "";
  const ended = new Promise((resolve) => child.on("close", (code, signal) => resolve({ code, signal, stderr })));
  const url = await new Promise((resolve, reject) => {
    child.stderr.on("data", (data) => {
      stderr += data;
      const found = /at (http:\S+)\/v1/.exec(stderr);
      if (found) resolve(found[1]);
    });
    ended.then(() => reject(new Error(`the server ended: ${stderr}`)));
  });
  child.stdout.resume();
  while ((await fetch(`${url}/ready`)).status !== 200) await sleep(50);
  const stop = (signal = "SIGTERM") => {
    child.kill(signal);
    return ended;
  };
  return { url, key: KEY, child, stop, ended };
}

/** A port that is free now. @returns {Promise<number>} */
export function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** Runs a program to its end. @param {string} command @param {string[]} argv @param {object} options */
export function run(command, argv, options = {}) {
  const child = spawn(command, argv, { stdio: ["ignore", "pipe", "pipe"], ...options });
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (data) => {
      output += data;
    });
  const ended = new Promise((resolve) => {
    child.on("error", (error) => resolve({ code: null, output: String(error) }));
    child.on("close", (code) => resolve({ code, output }));
  });
  return Object.assign(ended, { child });
}

/** @param {number} ms */
export function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Whether a program is installed. @param {string} command */
export async function isInstalled(command) {
  return (await run("sh", ["-c", `command -v ${command}`])).code === 0;
}

/** Waits until nothing runs on the server. @param {string} url */
export async function untilIdle(url) {
  for (let i = 0; i < 200; i++) {
    const text = await (await fetch(`${url}/metrics`)).text();
    if (/^lowbit_requests_running 0$/m.test(text)) return;
    await sleep(25);
  }
  throw new Error("the server still runs what was aborted");
}
