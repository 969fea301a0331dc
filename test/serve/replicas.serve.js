/** Two replicas behind nginx: one is killed, one drained; only requests in flight on the killed one fail. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, inject, it } from "vitest";
import { freePort, isInstalled, run, sleep, startServer } from "./process.js";

const folder = mkdtempSync(join(tmpdir(), "lowbit-serve-nginx-"));
afterAll(() => rmSync(folder, { recursive: true }));
const example = fileURLToPath(new URL("../../examples/deploy/nginx.conf", import.meta.url));

describe.skipIf(!(await isInstalled("nginx")))("two replicas behind nginx (skipped without nginx)", () => {
  it("serve while one is killed and started again, and the other is drained", async () => {
    const start = () => startServer([inject("program"), "--no-log"]);
    const replicas = [await start(), await start()];
    const port = await freePort();
    const servers = replicas.map(({ url }) => `server ${new URL(url).host} max_fails=1 fail_timeout=1s;`).join("\n");
    const config = readFileSync(example, "utf8")
      .replace(/(upstream lowbit \{)[^}]*/, `$1\nleast_conn;\n${servers}\n`)
      .replace(/listen [^;]*;/, `listen 127.0.0.1:${port};`)
      .replace(/^(user|pid|error_log) .*$/gm, "");
    const own = `daemon off;\npid ${folder}/nginx.pid;\nerror_log ${folder}/error.log;\n`;
    writeFileSync(
      join(folder, "nginx.conf"),
      own +
        config.replace(
          "http {",
          `http {\naccess_log off;\nclient_body_temp_path ${folder}/body;\nproxy_temp_path ${folder}/proxy;\nfastcgi_temp_path ${folder}/f;\nuwsgi_temp_path ${folder}/u;\nscgi_temp_path ${folder}/s;\n`,
        ),
    );
    const nginx = run("nginx", ["-c", join(folder, "nginx.conf"), "-p", folder]);
    const url = `http://127.0.0.1:${port}`;
    const headers = { "content-type": "application/json", authorization: `Bearer ${inject("key")}` };
    const body = JSON.stringify({ model: "demo", prompt: "ROMEO:", max_tokens: 20, temperature: 1, stream: true });
    const ask = async () => {
      const response = await fetch(`${url}/v1/completions`, { method: "POST", headers, body });
      const text = await response.text();
      if (response.status !== 200 || !text.endsWith("data: [DONE]\n\n"))
        throw new Error(`${response.status} ${text.slice(-200)}`);
    };
    try {
      for (
        let i = 0;
        i < 100 &&
        !(await fetch(`${url}/health`).then(
          ({ ok }) => ok,
          () => false,
        ));
        i++
      )
        await sleep(50);
      let isOver = false;
      let failed = 0;
      let answered = 0;
      const client = async () => {
        while (!isOver)
          await ask().then(
            () => answered++,
            () => failed++,
          );
      };
      const clients = Array.from({ length: 6 }, client);
      const more = async (count) => {
        for (const before = answered; answered < before + count; ) await sleep(20);
      };
      await more(20);
      expect(failed).toBe(0);
      replicas[0].child.kill("SIGKILL");
      await more(20);
      // Those that were in flight there: no client has more than one.
      const afterKill = failed;
      expect(afterKill).toBeLessThanOrEqual(6);
      const third = await startServer([inject("program"), "--no-log", "--port", new URL(replicas[0].url).port]);
      // nginx does not ask it again before its fail_timeout of 1 s is over.
      await sleep(2000);
      await more(20);
      expect((await replicas[1].stop("SIGTERM")).code).toBe(0);
      await more(20);
      isOver = true;
      await Promise.all(clients);
      expect(failed).toBe(afterKill);
      await third.stop();
    } finally {
      nginx.child.kill("SIGTERM");
      await nginx;
      for (const { child } of replicas) child.kill("SIGKILL");
    }
  });
});
