/** `lowbit bundle`: the kernels and code that one program needs, as modules for web pages or Node. */
import type { Command } from "commander";
import { bundleProgram } from "../index.ts";
import { formatTable } from "./table.ts";
import type { Terminal } from "./terminal.ts";

export function addBundle(program: Command, terminal: Terminal): void {
  program
    .command("bundle")
    .summary("write the runtime that a .pte program needs as one module")
    .description(
      "Writes lowbit.js, an ES module for Node and pages, and worker.js, a module worker for pages: the runtime with " +
        "only the operators and kernels (WebAssembly, plain JavaScript) that the program calls. Needs the package esbuild.",
    )
    .argument("<program>", "a .pte file; it is not copied")
    .requiredOption("-o, --output <folder>", "where to write the modules")
    .option("--json", "print operators, files and the modules in them as JSON")
    .addHelpText("after", "\nExamples:\n  $ lowbit bundle llama.pte -o public/llama")
    .action(async (path: string, { output, json }: { output: string; json?: boolean }) => {
      const bundle = await bundleProgram(path, output);
      if (json) return terminal.writeJson(bundle);
      const rows = bundle.files.map((file) => [file.path, ...[file.bytes, file.gzippedBytes].map(kilobytes)]);
      await terminal.writeLine(formatTable([["file", "size", "gzipped"], ...rows]));
      return terminal.writeLine(`operators: ${bundle.operators.join(", ")}`);
    });
}

const kilobytes = (bytes: number) => `${(bytes / 1000).toFixed(1)} kB`;
