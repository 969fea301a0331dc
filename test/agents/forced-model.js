/**
 * A model of random weights with a chat template of test/templates that reads a file by the client's own tool, and then says
 * what it is told to: a constraint holds it to that.
 */
import { copyFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { loadCheckpoint, loadCompiled } from "../../dist/index.js";
import { answerFormat } from "../../dist/text/answer/index.js";
import { writeTinyCheckpoint } from "../support/tiny-checkpoint.ts";

const CONTEXT = 131072;
const here = (path) => fileURLToPath(new URL(path, import.meta.url));

/** What tools that read files, or run commands, want beside the path. */
const READERS = /^(?:read|read_files?|readfile|view)$/i;
const SHELLS = /^(?:exec_command|shell_command|shell|bash|local_shell|run_shell_command)$/i;

/** Writes and loads a model of a template of test/templates. @param {string} folder @param {string} template */
export async function loadForcedModel(folder, template) {
  const config = {
    // The tokenizer has 2,048, beside the marks of templates.
    vocab_size: 2112,
    num_hidden_layers: 1,
    max_position_embeddings: CONTEXT,
    eos_token_id: 0,
    bos_token_id: 0,
  };
  const chatTemplate = readFileSync(here(`../templates/${template}.jinja`), "utf8");
  await writeTinyCheckpoint(folder, { config, chatTemplate });
  copyFileSync(here("../../models/shakespeare/tokenizer.json"), join(folder, "tokenizer.json"));
  const checkpoint = await loadCheckpoint(folder);
  const model = await loadCompiled(checkpoint, { contextLength: CONTEXT, kvCache: "f16" });
  await checkpoint.close();
  return model;
}

/**
 * Holds the answers of a model: while a conversation has no result of a tool, to a call that reads `file`; then, and where
 * there are no tools, to `text`. @param {object} model @param {{ file: string, text: string }} what
 */
export function force(model, { file, text }) {
  const asked = [];
  const { callSteps } = answerFormat(model.template.source, true);
  const held = (messages, options) => {
    const { tools = [] } = options;
    const isFirst = !messages.some(({ role }) => role === "tool");
    const call = isFirst ? callOf(tools, file) : null;
    asked.push({ messages, call: call?.name ?? null });
    const constraint = { kind: "choice", options: [call ? written(callSteps, call) : text] };
    return { ...options, constraint, temperature: 0, maxTokens: undefined, thinking: false };
  };
  for (const name of ["chat", "chatChoices"]) {
    const own = model[name].bind(model);
    model[name] = (messages, options) => own(messages, held(messages, options));
  }
  return asked;
}

/** A call as models of a template write it. */
function written(steps, call) {
  const args = JSON.stringify(call.arguments);
  const parts = {
    text: ({ text }) => text,
    name: () => call.name,
    arguments: () => args,
    call: ({ key }) => `{"name": "${call.name}", "${key}": ${args}}`,
  };
  return steps.map((step) => parts[step.kind](step)).join("");
}

/** A call of the tool that reads; null where there is none. */
function callOf(tools, file) {
  const reader = tools.find(({ name }) => READERS.test(name));
  if (reader) return { name: reader.name, arguments: argumentsOf(reader, file) };
  const shell = tools.find(({ name }) => SHELLS.test(name));
  return shell ? { name: shell.name, arguments: argumentsOf(shell, `cat ${file}`) } : null;
}

/** Values of the arguments that a schema requires: of texts the given one, of others the least. */
function argumentsOf({ parameters }, text) {
  const { properties = {}, required = [] } = parameters ?? {};
  const value = ({ type, items, properties: inner, required: innerRequired }) => {
    if (type === "array")
      return items?.type === "object" ? [value(items)] : items?.type === "string" ? ["cat", text] : [];
    if (type === "object") return argumentsOf({ parameters: { properties: inner, required: innerRequired } }, text);
    if (type === "number" || type === "integer") return 1;
    return type === "boolean" ? false : text;
  };
  return Object.fromEntries(required.map((name) => [name, value(properties[name] ?? {})]));
}
