/** Conversations as coding agents send them: the shapes of their requests, with texts of our own in the place of theirs. */

/** A text of about so many characters, the same for the same name. */
function prose(name: string, length: number): string {
  const sentence = `The ${name} of this project reads what is asked, looks into the files that it names, and says what it found. `;
  return sentence.repeat(Math.ceil(length / sentence.length)).slice(0, length);
}

const schema = (...names: string[]) => ({
  $schema: "http://json-schema.org/draft-07/schema#",
  type: "object",
  properties: Object.fromEntries(names.map((name) => [name, { type: "string", description: prose(name, 90) }])),
  required: names.slice(0, 1),
  additionalProperties: false,
});

/** Names and arguments of tools. */
const TOOLS: readonly (readonly [string, ...string[]])[] = [
  ["Bash", "command", "timeout", "description"],
  ["Read", "file_path", "offset", "limit"],
  ["Edit", "file_path", "old_string", "new_string"],
  ["Glob", "pattern", "path"],
  ["Task", "prompt", "subagent_type"],
];

/** Three requests of a client: the first of a conversation, that after its call, and the first of another conversation. */
export interface RecordedRequests {
  readonly client: string;
  readonly path: string;
  readonly first: object;
  readonly second: object;
  readonly other: object;
}

const QUESTIONS = ["What does calc.py do? Read it.", "Rename the function add to sum, everywhere."] as const;
const RESULT = "1\tdef add(a, b):\n2\t    return a + b\n";
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** The end of Claude Code's system prompt in a repository with files that are not committed. */
function gitStatus(file: string): string {
  return (
    "\n\ngitStatus: This is the git status at the start of the conversation. Note that this status is a snapshot in time, and " +
    `will not update during the conversation.\n\nCurrent branch: main\n\nStatus:\n?? ${file}.py\n\nRecent commits:\nc71131e first`
  );
}

/**
 * As Claude Code: metadata first in the system prompt and the state of the repository last, other in each conversation, agents
 * and skills behind the question, and a reminder behind results of tools.
 */
function claudeCode(): RecordedRequests {
  const system = (fingerprint: string) => [
    {
      type: "text",
      text: `x-anthropic-billing-header: cc_version=2.1.197.${fingerprint}; cc_entrypoint=cli; cch=0${fingerprint};`,
    },
    { type: "text", text: "You are an agent for software.", cache_control: { type: "ephemeral" } },
    { type: "text", text: prose("agent", 9000) + gitStatus(fingerprint), cache_control: { type: "ephemeral" } },
  ];
  const fields = (fingerprint: string) => ({
    ...{ model: "tiny", max_tokens: 32000, stream: true, thinking: { type: "adaptive" }, system: system(fingerprint) },
    ...{
      output_config: { effort: "max" },
      metadata: { user_id: `user_${fingerprint}` },
      context_management: { edits: [] },
    },
    tools: [
      ...TOOLS.map(([name, ...args]) => ({ name, description: prose(name, 700), input_schema: schema(...args) })),
      { type: "web_search_20250305", name: "web_search", max_uses: 8 },
    ],
  });
  const asked = (question: string) => [
    {
      role: "user",
      content: [
        { type: "text", text: `<system-reminder>\n${prose("reminder", 600)}\n</system-reminder>` },
        { type: "text", text: question, cache_control: { type: "ephemeral" } },
      ],
    },
    { role: "system", content: prose("skills", 6000) },
  ];
  const call = { type: "tool_use", id: "toolu_1", name: "Read", input: { file_path: "/p/calc.py" } };
  const image = { type: "image", source: { type: "base64", media_type: "image/png", data: PIXEL } };
  const result = { type: "tool_result", tool_use_id: "toolu_1", content: [{ type: "text", text: RESULT }, image] };
  return {
    ...{ client: "Claude Code", path: "/v1/messages" },
    first: { ...fields("58e"), messages: asked(QUESTIONS[0]) },
    second: {
      ...fields("58e"),
      messages: [
        ...asked(QUESTIONS[0]),
        { role: "assistant", content: [{ type: "text", text: "I read it." }, call] },
        {
          role: "user",
          content: [result, { type: "text", text: "<system-reminder>\nTokens left: 9000\n</system-reminder>" }],
        },
        { role: "system", content: "Tokens left: 8900" },
      ],
    },
    other: { ...fields("c8e"), messages: asked(QUESTIONS[1]) },
  };
}

/** As Codex: messages of the developer and of the user in a row, namespaces, tools of other kinds, encrypted thinking. */
function codex(): RecordedRequests {
  const message = (role: string, text: string) => ({ type: "message", role, content: [{ type: "input_text", text }] });
  const fn = ([name, ...args]: readonly string[]) => ({
    ...{ type: "function", name, description: prose(name!, 500), strict: false, parameters: schema(...args) },
  });
  const fields = {
    ...{ model: "tiny", stream: true, store: false, parallel_tool_calls: true, tool_choice: "auto" },
    ...{
      instructions: prose("instructions", 9000),
      prompt_cache_key: "01a22364",
      reasoning: { summary: "auto", effort: "xhigh" },
    },
    include: ["reasoning.encrypted_content"],
    tools: [
      { type: "namespace", name: "multi_agent_v1", description: "Agents.", tools: [fn(["close_agent", "target"])] },
      { type: "web_search", external_web_access: false },
      { type: "image_generation", output_format: "png" },
      {
        type: "custom",
        name: "apply_patch",
        description: "Patches.",
        format: { type: "grammar", syntax: "lark", definition: 'start: "a"' },
      },
      ...TOOLS.slice(0, 2).map(fn),
    ],
  };
  const start = (question: string) => [
    message("developer", prose("permissions", 900)),
    message("user", `<environment_context>\n${prose("environment", 300)}\n</environment_context>`),
    message("user", question),
  ];
  const item = {
    type: "function_call",
    id: "fc_1",
    call_id: "call_1",
    name: "Read",
    arguments: '{"file_path":"calc.py"}',
  };
  return {
    ...{ client: "Codex", path: "/v1/responses" },
    first: { ...fields, input: start(QUESTIONS[0]) },
    second: {
      ...fields,
      input: [
        ...start(QUESTIONS[0]),
        { type: "reasoning", id: "rs_1", summary: [], content: null, encrypted_content: "gAAA" },
        item,
        {
          type: "function_call_output",
          call_id: "call_1",
          output: [
            { type: "input_text", text: RESULT },
            { type: "input_image", image_url: `data:image/png;base64,${PIXEL}` },
          ],
        },
      ],
    },
    other: { ...fields, input: start(QUESTIONS[1]) },
  };
}

/** As clients of chat completions: opencode, Qwen Code, Cline, Continue, aider and pi differ in fields and in where texts stand. */
function chatClient(client: string, fields: object, systems: readonly string[], isParts: boolean): RecordedRequests {
  const content = (text: string) => (isParts ? [{ type: "text", text }] : text);
  const all = {
    ...{ model: "tiny", stream: true, stream_options: { include_usage: true }, ...fields },
    tools: TOOLS.map(([name, ...args]) => ({
      type: "function",
      function: { name, description: prose(name, 600), parameters: schema(...args) },
    })),
  };
  const start = (question: string) => [
    ...systems.map((text) => ({ role: "system", content: content(text) })),
    { role: "user", content: content(question) },
  ];
  const call = { id: "call_1", type: "function", function: { name: "Read", arguments: '{"file_path":"calc.py"}' } };
  return {
    ...{ client, path: "/v1/chat/completions" },
    first: { ...all, messages: start(QUESTIONS[0]) },
    second: {
      ...all,
      messages: [
        ...start(QUESTIONS[0]),
        { role: "assistant", content: "I read it.", tool_calls: [call] },
        { role: "tool", tool_call_id: "call_1", content: content(RESULT) },
        { role: "user", content: content("Go on.") },
      ],
    },
    other: { ...all, messages: start(QUESTIONS[1]) },
  };
}

export const recordedRequests: readonly RecordedRequests[] = [
  claudeCode(),
  codex(),
  chatClient(
    "opencode",
    { max_tokens: 32000, reasoning_effort: "max", top_p: 1 },
    [prose("header", 100), prose("system", 9000)],
    false,
  ),
  chatClient(
    "Qwen Code",
    { temperature: 0, metadata: { sessionId: "s", promptId: "p" } },
    [prose("system", 12000)],
    true,
  ),
  chatClient("Cline", { temperature: 0, parallel_tool_calls: false }, [prose("system", 9000)], true),
];
