/** The examples without a page, in every runtime that npm has. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { loadProgram } from "../../dist/index.js";
import { root } from "../native/sources.js";
import { nodeOfNpm } from "../wasm/engines.js";
import { installExample, run } from "./project.js";

const QUESTIONS = ["Speak, what trade art thou?", "And thy name?"];

/** An executable that npm has as a package of the platform. @param {string} name @param {string} version @param {string} file */
function executable(name, version, file) {
  const place = join(root, "build", name.replace(/\W+/g, "-"));
  const path = join(place, "node_modules", name, file);
  if (existsSync(path)) return path;
  mkdirSync(place, { recursive: true });
  writeFileSync(join(place, "package.json"), "{}\n");
  const flags = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
  execFileSync("npm", ["install", "--prefix", place, ...flags, `${name}@${version}`], { stdio: "inherit" });
  return path;
}

/** Commands that run a module, by name: this Node, the newest, Bun and Deno. @returns {[string, string[]][]} */
function runtimes() {
  const { platform, arch } = process;
  const libc = platform === "linux" ? "-glibc" : "";
  const ending = platform === "win32" ? ".exe" : "";
  const bun = executable(`@oven/bun-${platform}-${arch === "arm64" ? "aarch64" : arch}`, "1.4.4", `bin/bun${ending}`);
  const deno = executable(`@deno/${platform}-${arch}${libc}`, "2.9.6", `deno${ending}`);
  return [
    ["this Node", [process.execPath]],
    ["the newest Node", [nodeOfNpm("latest")]],
    ["Bun", [bun, "run"]],
    ["Deno", [deno, "run", "--allow-all"]],
  ];
}

/** What the model answers in this process, to the same seed. @param {string} program */
async function expectedAnswers(program) {
  const llm = await loadProgram(program);
  const chat = llm.createConversation();
  let text = "> ";
  for (const question of QUESTIONS) {
    for await (const piece of chat.send(question, { maxTokens: 200, seed: 1 })) text += piece;
    text += "\n> ";
  }
  await llm.dispose();
  return text;
}

/** The conversation in the terminal says the same in all runtimes. @param {import("./project.js").Context} context */
export async function testChat(context) {
  const project = installExample("chat-node", context);
  const expected = await expectedAnswers(context.program);
  assert.ok(expected.length > 40, `the model answers, not ${expected}`);
  const input = `${QUESTIONS.join("\n")}\n`;
  for (const [name, [command, ...args]] of runtimes()) {
    const said = await run(command, [...args, "chat.js", "model.pte"], { cwd: project, input });
    assert.equal(said, expected, name);
    console.log(`chat-node: ${name} answers as expected`);
  }
}

/** A checkpoint becomes a program. @param {import("./project.js").Context} context */
export async function testQuantize(context) {
  const project = installExample("quantize", context);
  const checkpoint = join(root, "models", "shakespeare");
  const said = await run(process.execPath, ["quantize.js", checkpoint, "small.pte"], { cwd: project });
  const megabytes = (statSync(join(project, "small.pte")).size / 1e6).toFixed(1);
  const [first, ...written] = said.split("\n");
  assert.match(first, new RegExp(`^small\\.pte: ${megabytes} MB, \\d\\.\\d\\d bits a weight$`));
  assert.match(written.join("\n"), /^Once upon a time.{20}/s, "the program writes text");
}

/** The operator of docs/custom-operator.md, with its kernel in C++. @param {import("./project.js").Context} context */
export async function testOperator(context) {
  if (context.packages.length < 2) return console.log("squared-relu: skipped, there is no native addon");
  const project = installExample("squared-relu", context);
  await run("npm", ["run", "-s", "build"], { cwd: project });
  const said = await run(nodeOfNpm("latest"), ["main.ts"], { cwd: project });
  assert.equal(said, "Float32Array(3) [ 0, 4, 9 ] [ 'squared_relu_f32_1x1x1_cpp' ]\n");
}

/** A project of one's own with a link to this checkout, as README.md says: the command, the library and the types. */
export async function testInstall(/** @type {import("./project.js").Context} */ { folder }) {
  const project = join(folder, "my-app");
  mkdirSync(project);
  const cwd = { cwd: project };
  await run("npm", ["init", "-y"], cwd);
  await run("npm", ["pkg", "set", "type=module"], cwd);
  await run("npm", ["install", "--no-audit", "--no-fund", "--ignore-scripts", root], cwd);
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  assert.equal(await run("npx", ["--no-install", "lowbit", "--version"], cwd), `${version}\n`);
  const [, code] = /^```ts\n(.*?)^```$/ms.exec(readFileSync(join(root, "README.md"), "utf8"));
  writeFileSync(join(project, "main.ts"), `${code}\nllm.nothing;\n`);
  const types = ["--typeRoots", join(root, "node_modules", "@types"), "--types", "node"];
  const tsc = [join(root, "node_modules", "typescript", "bin", "tsc"), "--noEmit", "--module", "nodenext", "--strict"];
  const found = await run(process.execPath, [...tsc, "--target", "es2023", ...types, "main.ts"], cwd).catch(String);
  const errors = found.split("\n").filter((line) => line.includes("error TS"));
  assert.equal(errors.length, 1, found);
  assert.match(errors[0], /error TS2339: Property 'nothing' does not exist on type 'LanguageModel'/);
}
