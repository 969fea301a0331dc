/** The Python environment with ExecuTorch that scripts/test-executorch.js uses: of its own, thrown away with build/. */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";

const packages = ["executorch==1.5.1", "torch==2.13.0"];

/**
 * Runs a program, its errors beside ours only when it fails; gives what it prints.
 * @param {string} program
 * @param {string[]} args
 * @param {Record<string, string>} [variables] of its environment, beside ours
 */
export function run(program, args, variables = {}) {
  const env = { ...process.env, ...variables };
  try {
    return execFileSync(program, args, {
      encoding: "utf8",
      maxBuffer: 1 << 28,
      stdio: ["ignore", "pipe", "pipe"],
      env,
    });
  } catch (error) {
    console.error(String(error.stderr).slice(-4000));
    throw error;
  }
}

/** The Python of an environment in `folder`, made when it is not there. @param {string} folder */
export function pythonWithExecutorch(folder) {
  const python = join(folder, "bin", "python");
  if (existsSync(join(folder, "ready"))) return python;
  console.log(`installing ${packages.join(" and ")} (large)`);
  run("python3", ["-m", "venv", folder]);
  run(python, ["-m", "pip", "install", "--quiet", ...packages]);
  run(python, ["-c", `open(${JSON.stringify(join(folder, "ready"))}, "w")`]);
  return python;
}

/** Installed versions by package. @param {string} python @param {string[]} names @returns {Record<string, string>} */
export function versions(python, names) {
  const program =
    "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))";
  return JSON.parse(run(python, ["-c", program, ...names]));
}
