/** `lowbit doctor`: CPU, kernels and memory of this machine, and what would be faster. */
import type { Command } from "commander";
import { type Diagnosis, diagnose, programCache } from "../tools/index.ts";
import { formatBytes, formatTable } from "./table.ts";
import type { Terminal } from "./terminal.ts";

export function addDoctor(program: Command, terminal: Terminal): void {
  program
    .command("doctor")
    .summary("show what this machine runs models with, and what would be faster")
    .description("Looks at CPU, kernels, threads and memory of this machine, and says what would make models faster.")
    .option("--json", "print what was found as JSON")
    .action((options: { json?: boolean }) => doctor(options, terminal));
}

async function doctor({ json }: { json?: boolean }, terminal: Terminal): Promise<void> {
  const found = diagnose();
  if (json) return terminal.writeJson({ ...found, programCache: programCache() });
  const advice = found.advice.length > 0 ? found.advice : ["Nothing is known that would make this machine faster."];
  await terminal.writeLine(`${formatTable([["lowbit", found.version], ...rowsOf(found)])}\n\n${advice.join("\n")}`);
}

function rowsOf(found: Diagnosis): [string, string][] {
  const { runtime, cpu, cores, features, backend, kernels, threads, memory, readBytesPerSecond } = found;
  const backends = { native: "native code", wasm: "WebAssembly", reference: "TypeScript, which is slow" };
  return [
    ["runtime", runtime],
    ["CPU", `${cpu}, ${cores} cores`],
    ["features", features.join(", ") || "none that kernels use"],
    ["kernels", `${backends[backend]}${kernels.length > 0 ? `: ${kernels.join(", ")}` : ""}`],
    ["threads", String(threads)],
    ["memory", `${formatBytes(memory.totalBytes)}, ${formatBytes(memory.freeBytes)} free`],
    ...(readBytesPerSecond === null
      ? []
      : ([
          [
            "reads",
            `${formatBytes(Math.round(readBytesPerSecond))} a second now: a model of 1 GB makes at most ${Math.floor(readBytesPerSecond / 1e9)} tokens a second`,
          ],
        ] as [string, string][])),
    ["programs", programCache()],
  ];
}
