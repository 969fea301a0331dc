/** README.md and the pages of docs/ against what they say: links, code and figures. */
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { API } from "typescript/unstable/sync";
import { describe, expect, it } from "vitest";
import { lowbit } from "./support/command-line.ts";
import { temporaryFolder } from "./support/folders.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const text = (path: string) => readFileSync(join(root, path), "utf8");

/** Markdown files of the project, as paths from its root. */
const pages = readdirSync(root, { recursive: true, encoding: "utf8" }).filter(
  (path) => path.endsWith(".md") && !/(^|\/)(node_modules|build|dist|reference|\.changeset|\.vitepress)\//.test(path),
);

/** Charts of docs/, as paths from the root. */
const charts = readdirSync(join(root, "docs"), { recursive: true, encoding: "utf8" })
  .filter((path) => path.endsWith(".svg") && !/(^|\/)node_modules\//.test(path))
  .map((path) => join("docs", path));

it.each(charts)("%s names files without the folders of the machine that drew it", (path) => {
  expect(text(path)).not.toMatch(/<title>(\/|[A-Za-z]:\\)/);
});

/** Text without blocks of code and comments, whose brackets are no links and whose hashes are no headings. */
const prose = (markdown: string) => markdown.replace(/^```.*?^```$/gms, "").replace(/<!--.*?-->/gs, "");

/** The anchor that GitHub gives a heading. */
const anchorOf = (heading: string) =>
  heading
    .replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");

const anchorsOf = (path: string) =>
  new Set([...prose(text(path)).matchAll(/^#{1,6} (.+)$/gm)].map(([, heading]) => anchorOf(heading!)));

/** What is wrong with a link of a page; null where it leads somewhere. */
function linkProblem(page: string, link: string): string | null {
  const [target, anchor] = link.split("#") as [string, string?];
  const path = target === "" ? page : relative(root, resolve(root, dirname(page), target));
  if (!existsSync(join(root, path))) return `${link}: no such file`;
  if (anchor !== undefined && !anchorsOf(path).has(anchor)) return `${link}: ${path} has no such heading`;
  return null;
}

interface Block {
  /** Where it stands: "docs/cli.md 2". */
  readonly name: string;
  readonly code: string;
}

const blocksOf = (page: string): Block[] =>
  [...text(page).matchAll(/^```ts\n(.*?)^```$/gms)].map(([, code], i) => ({ name: `${page} ${i + 1}`, code: code! }));

describe("README.md", () => {
  const readme = text("README.md");

  it("fits on a screen", () => {
    const words = readme.split(/\s+/).filter(Boolean).length;
    expect(words).toBeGreaterThanOrEqual(400);
    expect(words).toBeLessThanOrEqual(500);
  });

  it("has the speed that bench/results/ has", () => {
    const [, prompt, decode, peerPrompt, peerDecode] = /\| ([\d.]+) \/ ([\d.]+) \| ([\d.]+) \/ ([\d.]+) \|/.exec(
      readme,
    )!;
    const report = text("bench/results/peers-avx2.md");
    const row = (name: string) => new RegExp(`^\\| ${name} +\\| 2 +\\| ([\\d.]+) +\\| ([\\d.]+) `, "m").exec(report)!;
    expect([peerPrompt, prompt]).toEqual(row("prefill 512").slice(1));
    expect([peerDecode, decode]).toEqual(row("decode 128").slice(1));
    expect(readme).toContain(/^- Commit \w+, ([\d-]+)/m.exec(report)![1]);
    expect(report).toContain("CPU: AMD EPYC");
  });

  it("has code that runs, on the demo model", async () => {
    const folder = await temporaryFolder();
    const [{ code }] = blocksOf("README.md") as [Block];
    const name = '"hf:HuggingFaceTB/SmolLM2-135M-Instruct"';
    expect(code).toContain(name);
    const program = code
      .replace(name, JSON.stringify(join(root, "models", "shakespeare")))
      .replace('"lowbit"', JSON.stringify(join(root, "src", "index.ts")));
    const file = join(folder, "main.ts");
    writeFileSync(file, program);
    const written: string[] = [];
    const { write } = process.stdout;
    const directory = process.cwd();
    process.chdir(folder);
    process.stdout.write = (chunk) => written.push(String(chunk)) > 0;
    try {
      await import(file);
    } finally {
      process.stdout.write = write;
      process.chdir(directory);
    }
    // Drawn by chance: an answer may be short.
    expect(written.join("").trim()).not.toBe("");
    expect(existsSync(join(folder, "smollm2.pte"))).toBe(true);
  });
});

describe("pages", () => {
  it.each(pages)("%s: links lead somewhere", (page) => {
    const links = [...prose(text(page)).matchAll(/\]\(([^)\s]+)\)/g)].map(([, link]) => link!);
    const local = links.filter((link) => !/^[a-z]+:/.test(link));
    expect(local.map((link) => linkProblem(page, link)).filter((problem) => problem !== null)).toEqual([]);
  });

  it.each(pages.filter((page) => /^(docs\/|[A-Z]+\.md)/.test(page)))("%s: names files that are there", (page) => {
    const named = text(page).matchAll(/`((?:src|test|scripts|native|bench|web|examples|models)\/[\w./-]*)`/g);
    expect([...named].map(([, path]) => path!).filter((path) => !existsSync(join(root, path)))).toEqual([]);
  });

  it("are all listed in docs/index.md or CONTRIBUTING.md", () => {
    const listed = `${text("docs/index.md")}${text("CONTRIBUTING.md")}`;
    const guides = pages.filter((page) => page.startsWith("docs/") && page !== "docs/index.md");
    const names = guides.map((page) => (page.includes("contributing/") ? page : page.slice("docs/".length)));
    expect(names.filter((name) => !listed.includes(`(${name})`))).toEqual([]);
  });

  it("have code whose types are right", { timeout: 120_000 }, () => {
    // The page about operators of one's own is run whole, by scripts/docs/walkthrough.test.js.
    const blocks = pages.filter((page) => page !== "docs/custom-operator.md").flatMap(blocksOf);
    const sources = blocks.map(({ name, code }) => [join(root, `${name.replace(/\W+/g, "-")}.ts`), code] as const);
    const settings = { compilerOptions: { noUnusedLocals: false }, include: [], files: sources.map(([path]) => path) };
    const project = join(root, "tsconfig.pages.json");
    const files = new Map(sources);
    files.set(project, JSON.stringify({ extends: "./tsconfig.json", ...settings }));
    const fs = {
      fileExists: (path: string) => files.has(path) || undefined,
      readFile: (path: string) => files.get(path),
    };
    const api = new API({ cwd: root, fs });
    const { program } = api.updateSnapshot({ openProject: project }).getProject(project)!;
    const problems = sources.flatMap(([path]) => {
      const found = [...program.getSyntacticDiagnostics(path), ...program.getSemanticDiagnostics(path)];
      return found.map(({ text }) => `${relative(root, path)}: ${text}`);
    });
    api.close();
    expect(blocks.length).toBeGreaterThan(8);
    expect(problems).toEqual([]);
  });

  it("show commands that the command line knows", async () => {
    const commands = pages.flatMap((page) =>
      [...text(page).matchAll(/^(?:npx )?lowbit ([a-z]+)(.*)$/gm)].map(([, name, rest]) => ({
        name: name!,
        rest: rest!,
      })),
    );
    const help = new Map<string, string>();
    for (const { name } of commands) help.set(name, (await lowbit([name, "--help"])).stdout);
    const unknown = commands.flatMap(({ name, rest }) => {
      const options = [...rest.matchAll(/ (--[a-z-]+)/g)].map(([, option]) => option!);
      return options.filter((option) => !help.get(name)!.includes(option)).map((option) => `${name} ${option}`);
    });
    expect(commands.length).toBeGreaterThan(10);
    expect(unknown).toEqual([]);
  });
});
