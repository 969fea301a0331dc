/**
 * Two threads beside one while a process of somebody else keeps one core busy: prints how many times faster two are.
 * Below 1, two threads would wait for the busy core. `node bench/busy-core.js [--shape 1b] [--scheme "4-bit g32"]`
 */
import { spawn } from "node:child_process";
import { parseArgs } from "node:util";
import { EngineProcess } from "./engine-process.js";
import { programOf } from "./programs.js";
import { digits, median, table } from "./report.js";

const { values: options } = parseArgs({
  options: {
    shape: { type: "string", default: "1b" },
    scheme: { type: "string", default: "4-bit g32" },
    rounds: { type: "string", default: "5" },
  },
});
const path = await programOf(options.shape, options.scheme);
const threadCounts = [1, 2];
const questions = [
  { name: "prefill 64", tokens: 64, request: { what: "prefill", tokens: 64 } },
  { name: "decode 16", tokens: 16, request: { what: "decode", tokens: 16 } },
];

const engines = [];
for (const threads of threadCounts) engines.push(await EngineProcess.start("ours", { path, threads }));
const busy = spawn(process.execPath, ["-e", "for (;;);"], { stdio: "ignore" });
try {
  const rows = [];
  for (const { name, tokens, request } of questions) {
    const seconds = engines.map(() => []);
    for (let round = 0; round < Number(options.rounds); round++)
      for (const [i, engine] of engines.entries()) seconds[i].push([await engine.ask(request)].flat()[0]);
    const rates = seconds.map((list) => tokens / median(list));
    rows.push([name, ...rates.map(digits), digits(rates[1] / rates[0])]);
  }
  console.log(table(["beside a busy core", "1 thread, tok/s", "2 threads, tok/s", "ratio"], rows));
} finally {
  busy.kill();
  for (const engine of engines) await engine.stop();
}
