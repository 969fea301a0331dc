/** The Dockerfile's last stage without Docker: its files in a clean folder, its user, its command and its health check. */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { freePort, sleep } from "./process.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const PORT = "8080";
/** The user `node` of its image. */
const NODE_USER = 1000;

/** Instructions of the Dockerfile, one a line, in stages. */
const stages = readFileSync(join(root, "Dockerfile"), "utf8")
  .replace(/^#.*\n/gm, "")
  .replace(/\\\n\s*/g, "")
  .trim()
  .split(/^(?=FROM )/m)
  .map((stage) => stage.trim().split(/\n+/));
const last = stages.at(-1);
/** What follows a word of an instruction of the last stage. */
const of = (word) => last.filter((line) => line.startsWith(`${word} `)).map((line) => line.slice(word.length + 1));
const listIn = (text) => JSON.parse(text.slice(text.indexOf("[")));

describe("the Dockerfile", () => {
  it("is built on a Node that the package runs on", () => {
    const { engines } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
    const least = Number(/>=(\d+)/.exec(engines.node)[1]);
    for (const [from] of stages) expect(Number(/^FROM node:(\d+)-/.exec(from)[1])).toBeGreaterThanOrEqual(least);
  });

  it("takes what the build gives, and nothing that is left out of it", () => {
    const [build] = stages;
    expect(build).toContain("COPY . .");
    const ignored = readFileSync(join(root, ".dockerignore"), "utf8").trim().split("\n");
    for (const folder of ["build", "dist", "**/node_modules"]) expect(ignored).toContain(folder);
    // What the commands of the build call must be there.
    for (const script of build.join(" ").matchAll(/node (scripts\/\S+)/g))
      expect(existsSync(join(root, script[1]))).toBe(true);
    for (const needed of ["package-lock.json", "scripts", "src", "packages", "native", "web", "tsconfig.build.json"])
      expect(ignored).not.toContain(needed);
  });
});

describe("the image", () => {
  const folder = mkdtempSync(join(tmpdir(), "lowbit-image-"));
  const image = join(folder, "lowbit");
  const asNode = process.getuid?.() === 0 ? { uid: NODE_USER, gid: NODE_USER } : {};
  const env = {
    PATH: `${dirname(process.execPath)}:${process.env.PATH}`,
    HOME: "/nonexistent",
    NODE_ENV: "production",
  };
  let server;
  let port;

  beforeAll(async () => {
    // Packages of the product alone, as `npm prune --omit=dev` leaves them.
    const { stdout } = spawnSync("npm", ["ls", "--all", "--parseable", "--omit=dev"], { cwd: root, encoding: "utf8" });
    const modules = stdout.split("\n").filter((path) => path.startsWith(join(root, "node_modules")));
    expect(modules.length).toBeGreaterThan(5);
    mkdirSync(image);
    for (const copy of of("COPY")) {
      const [, from, to] = /^--from=build \/lowbit\/(\S+) (\S+)$/.exec(copy);
      if (from === "node_modules")
        for (const path of modules) cpSync(path, join(image, path.slice(root.length)), { recursive: true });
      else if (statSync(join(root, from)).isFile()) cpSync(join(root, from), join(image, to, from));
      else if (from === "build") {
        mkdirSync(join(image, to));
        if (existsSync(join(root, "build/lowbit.node")))
          cpSync(join(root, "build/lowbit.node"), join(image, to, "lowbit.node"));
      } else cpSync(join(root, from), join(image, to), { recursive: true });
    }
    mkdirSync(join(folder, "models"));
    cpSync(inject("program"), join(folder, "models", "demo.pte"));
    // Another user goes through the folders of the test.
    for (const path of [tmpdir(), folder, join(folder, "models")]) chmodSync(path, statSync(path).mode | 0o055);
    chmodSync(join(folder, "models", "demo.pte"), 0o444);
    port = String(await freePort());
    const [command, ...argv] = listIn(of("ENTRYPOINT")[0]).map((word) => (word === PORT ? port : word));
    expect(argv).toContain(port);
    server = spawn(command, [...argv, join(folder, "models", "demo.pte")], {
      cwd: image,
      env,
      ...asNode,
      stdio: "ignore",
    });
  });

  afterAll(() => {
    server?.kill("SIGKILL");
    rmSync(folder, { recursive: true });
  });

  /** Runs the health check's command. */
  const health = () => {
    const check = of("HEALTHCHECK")[0];
    const [command, ...argv] = listIn(check.slice(check.indexOf("CMD"))).map((word) => word.replace(PORT, port));
    return spawnSync(command, argv, { cwd: image, env, ...asNode, timeout: 10_000 }).status;
  };

  it("runs as a user that is not root, in Docker by name", () => {
    expect(of("USER")).toEqual(["node"]);
  });

  it("answers its health check, and a request, and ends by the signal that Docker sends", {
    timeout: 60_000,
  }, async () => {
    const url = `http://127.0.0.1:${port}`;
    for (let i = 0; i < 200; i++) {
      const ready = await fetch(`${url}/ready`).catch(() => null);
      if (ready?.status === 200) break;
      await sleep(100);
    }
    expect(health()).toBe(0);
    const body = JSON.stringify({ model: "demo", prompt: "ROMEO:", max_tokens: 4 });
    const headers = { "content-type": "application/json" };
    const response = await fetch(`${url}/v1/completions`, { method: "POST", headers, body });
    expect(response.status).toBe(200);
    expect((await fetch(url)).status).toBe(existsSync(join(root, "dist/page/index.html")) ? 200 : 404);
    const ended = once(server, "exit");
    server.kill(of("STOPSIGNAL")[0]);
    expect((await ended)[0]).toBe(0);
    expect(health()).toBe(1);
  });
});
