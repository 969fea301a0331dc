/** Clients of Python, in the environment that `npm run test:serve` makes: OpenAI's, schemathesis, LiteLLM, lm-eval. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, inject, it } from "vitest";
import { freePort, run, sleep, startServer, untilIdle } from "./process.js";

const python = process.env.SERVE_PYTHON ?? "";
const hasModule = async (name) => python !== "" && (await run(python, ["-c", `import ${name}`])).code === 0;
const url = inject("url");
const key = inject("key");
const env = { ...process.env, SERVE_URL: url, SERVE_KEY: key, OPENAI_API_KEY: key };
const folder = mkdtempSync(join(tmpdir(), "lowbit-serve-python-"));
afterAll(() => rmSync(folder, { recursive: true }));
const file = (name) => fileURLToPath(new URL(name, import.meta.url));

describe.skipIf(!(await hasModule("openai")))("openai for Python (skipped where pip cannot install it)", () => {
  it("streams, calls tools, follows a schema, leaves", async () => {
    const { code, output } = await run(python, [file("openai_client.py")], { env });
    expect([code, output]).toEqual([0, "the client is content\n"]);
    await untilIdle(url);
  });
});

describe.skipIf(!(await hasModule("schemathesis")))("schemathesis (skipped where pip cannot install it)", () => {
  it("finds no fault and no violation of the OpenAPI document", async () => {
    // A short context, so that answers to its requests end soon.
    // A key that may not delete the model that it asks.
    const server = await startServer([inject("program"), "--context", "48"], { LOWBIT_API_KEYS: key });
    const argv = [
      "run",
      `${server.url}/openapi.json`,
      "-H",
      `Authorization: Bearer ${key}`,
      "--no-color",
      "--seed",
      "1",
    ];
    // A request that fits its schema may have a prompt that is too long.
    const limits = [
      "--max-examples",
      "4",
      "--phases",
      "coverage,fuzzing",
      "--exclude-checks",
      "positive_data_acceptance",
    ];
    const st = join(dirname(python), "schemathesis");
    const { code, output } = await run(st, [...argv, ...limits], { cwd: folder, env });
    expect(output).toContain("Tested: 33");
    expect([code, code === 0 ? "" : output]).toEqual([0, ""]);
    expect((await server.stop()).code).toBe(0);
  }, 400_000);
});

describe.skipIf(!(await hasModule("litellm.proxy.proxy_server")))("LiteLLM as a proxy (with --all)", () => {
  it("passes chats on", async () => {
    const port = await freePort();
    const config = join(folder, "litellm.yaml");
    const params = `{ model: openai/demo, api_base: ${url}/v1, api_key: ${key} }`;
    writeFileSync(config, `model_list:\n  - model_name: shakespeare\n    litellm_params: ${params}\n`);
    const argv = ["--config", config, "--port", String(port), "--host", "127.0.0.1"];
    // Without network, and without a key of its own.
    const local = { LITELLM_LOCAL_MODEL_COST_MAP: "True", LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY: "true" };
    const proxy = run(join(dirname(python), "litellm"), argv, { env: { ...env, ...local }, cwd: folder });
    try {
      const proxied = `http://127.0.0.1:${port}`;
      for (let i = 0; i < 240; i++) {
        if (
          await fetch(`${proxied}/health/liveliness`).then(
            ({ ok }) => ok,
            () => false,
          )
        )
          break;
        await sleep(500);
      }
      const body = {
        model: "shakespeare",
        messages: [{ role: "user", content: "What news?" }],
        max_tokens: 8,
        temperature: 0,
      };
      const ask = (fields) =>
        fetch(`${proxied}/v1/chat/completions`, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ ...body, ...fields }),
        });
      const whole = await (await ask({})).json();
      const streamed = await (await ask({ stream: true })).text();
      const pieces = [...streamed.matchAll(/^data: (\{.*\})$/gm)].map(([, data]) => JSON.parse(data));
      const text = pieces.map(({ choices }) => choices[0]?.delta?.content ?? "").join("");
      expect(text).toBe(whole.choices[0].message.content);
    } finally {
      proxy.child.kill();
      await proxy;
    }
  }, 240_000);
});

describe.skipIf(!(await hasModule("lm_eval")))("lm-eval (with --all)", () => {
  it("scores 20 questions by log-likelihoods", async () => {
    const questions = readFileSync(file("../../models/shakespeare/heldout.txt"), "utf8").split("\n\n").slice(5, 25);
    const lines = questions.map((text, i) => {
      const words = text.trim().split(/\s+/);
      const right = words.slice(6, 12).join(" ");
      const wrong = right.split("").reverse().join("");
      return JSON.stringify({
        start: words.slice(0, 6).join(" "),
        options: i % 2 ? [right, wrong] : [wrong, right],
        answer: i % 2 ? 0 : 1,
      });
    });
    writeFileSync(join(folder, "questions.jsonl"), lines.join("\n"));
    const task = [
      "task: lowbit_lines",
      "dataset_path: json",
      `dataset_kwargs: { data_files: { test: ${join(folder, "questions.jsonl")} } }`,
      "test_split: test",
      "output_type: multiple_choice",
      'doc_to_text: "{{start}}"',
      "doc_to_target: answer",
      "doc_to_choice: options",
      "metric_list: [{ metric: acc, aggregation: mean, higher_is_better: true }]",
    ];
    writeFileSync(join(folder, "lowbit_lines.yaml"), task.join("\n"));
    const args = `model=demo,base_url=${url}/v1/completions,tokenizer=${inject("tokenizer")},tokenizer_backend=huggingface,num_concurrent=4,max_length=512`;
    const argv = [
      "--model",
      "local-completions",
      "--model_args",
      args,
      "--tasks",
      "lowbit_lines",
      "--include_path",
      folder,
    ];
    const lmEval = join(dirname(python), "lm_eval");
    const offline = { HF_HUB_OFFLINE: "1", HF_HOME: join(folder, "hf") };
    const { code, output } = await run(lmEval, [...argv, "--limit", "20"], {
      env: { ...env, ...offline },
      cwd: folder,
    });
    expect([code, code === 0 ? "" : output]).toEqual([0, ""]);
    const accuracy = Number(/\|acc\s*\|[^|]*\|\s*([\d.]+)/.exec(output)?.[1]);
    // Lines of Shakespeare are likelier than the same backwards.
    expect(accuracy).toBeGreaterThan(0.8);
  }, 240_000);
});
