/** Formats the project's C++ and C as .clang-format says; `--check` changes nothing and fails where a file differs. */
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { root } from "./sources.js";

/** clang-format as WebAssembly: one version, which gives the same on every machine. */
const clangFormat = join(root, "node_modules", "@wasm-fmt", "clang-format", "clang-format-cli.cjs");
const folders = ["native", "packages", "examples", "bench", "scripts", "test"];
const files = folders.flatMap((folder) =>
  readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => /\.(cc|h|c)$/.test(name) && !/(^|[\\/])(node_modules|build|dist)[\\/]/.test(name))
    .map((name) => join(folder, name)),
);

if (existsSync(clangFormat)) {
  const flags = process.argv.includes("--check") ? ["--dry-run", "-Werror"] : ["-i"];
  const { status } = spawnSync(process.execPath, [clangFormat, ...flags, ...files], { cwd: root, stdio: "inherit" });
  if (status === 0) console.log(`format: ${files.length} files of C++`);
  else console.error("format: some C++ is not formatted; npm run format does it");
  process.exitCode = status ?? 1;
} else {
  console.error("format: @wasm-fmt/clang-format is not installed: run npm install (--ignore-scripts builds nothing)");
  process.exitCode = 1;
}
