/** The server that all clients are tested against: the demo model, with a chat template that knows tools and thinking. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  exportProgram,
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  quantize,
  sharedEmbedding,
} from "../../dist/index.js";
import { startServer } from "./process.js";

const demo = fileURLToPath(new URL("../../models/shakespeare", import.meta.url));

/** Speakers of a play, with tools and their calls as Hermes has them. */
const template = `{% if tools %}Tools: {{ tools | tojson }} Call them as <tool_call>{"name": ..., "arguments": ...}</tool_call>

{% endif %}{% for message in messages %}{{ message.role | upper }}:
{{ message.content }}{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}

{% endfor %}{% if add_generation_prompt %}MENENIUS:
{% if enable_thinking %}<think>
{% endif %}{% endif %}{# thinking ends with </think> #}`;

/** @param {import("vitest/node").TestProject} project */
export default async function setup(project) {
  const folder = mkdtempSync(join(tmpdir(), "lowbit-serve-"));
  cpSync(demo, join(folder, "demo"), { recursive: true });
  const config = join(folder, "demo", "tokenizer_config.json");
  writeFileSync(config, JSON.stringify({ ...JSON.parse(readFileSync(config, "utf8")), chat_template: template }));
  const model = await loadCheckpoint(join(folder, "demo"));
  quantize(model, [
    int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32, scaleDType: "f16" }),
    sharedEmbedding({ bits: 4, scaleDType: "f16" }),
  ]);
  const program = join(folder, "demo.pte");
  await exportProgram(model, program);
  await model.close();
  const embedder = await loadCheckpoint(fileURLToPath(new URL("../../models/tiny-bge", import.meta.url)));
  const embeddings = join(folder, "bge.pte");
  await exportProgram(embedder, embeddings);
  await embedder.close();
  const server = await startServer([program, embeddings]);
  project.provide("url", server.url);
  project.provide("program", program);
  project.provide("key", server.key);
  project.provide("tokenizer", join(folder, "demo"));
  return async () => {
    const { code } = await server.stop();
    rmSync(folder, { recursive: true });
    if (code !== 0) throw new Error(`the server ended with ${code}`);
  };
}
