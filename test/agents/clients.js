/** The clients that are tried: what is installed, and how each is asked without a terminal. */

const QUESTION = "What does calc.py do? Read it.";
const FURTHER = "And what does it give for 2 and 3?";
const OTHER = "Rename the function add to sum, everywhere.";

/**
 * @typedef {object} AgentClient
 * @property {string} name as `lowbit launch` has it
 * @property {string} [npm] package with its version
 * @property {string} [setup] script of the package that fetches its program
 * @property {string} [pip] packages with their versions
 * @property {string[]} first arguments of the first question
 * @property {string[] | null} next those of another in the same conversation; null where it has none without a terminal
 * @property {string[]} other those of a new conversation
 * @property {boolean} [hasTools] whether it offers tools. Default: true
 * @property {number} [otherShare] share of its first request that a new conversation must find. Default: 0.92
 */

const asked = (/** @type {(question: string) => string[]} */ ask) => ({ first: ask(QUESTION), other: ask(OTHER) });

/** @type {readonly AgentClient[]} */
export const agentClients = [
  {
    ...{ name: "claude", npm: "@anthropic-ai/claude-code@2.1.197", setup: "install.cjs" },
    ...asked((question) => ["-p", question, "--dangerously-skip-permissions"]),
    next: ["-c", "-p", FURTHER, "--dangerously-skip-permissions"],
  },
  {
    ...{ name: "codex", npm: "@openai/codex@0.171.0" },
    ...asked((question) => ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", question]),
    next: ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "resume", "--last", FURTHER],
  },
  {
    ...{ name: "opencode", npm: "opencode-ai@1.18.33", setup: "postinstall.mjs" },
    ...asked((question) => ["run", question]),
    next: ["run", "-c", FURTHER],
  },
  {
    ...{ name: "qwen", npm: "@qwen-code/qwen-code@0.15.10" },
    ...asked((question) => ["-p", question, "--yolo"]),
    next: ["-c", "-p", FURTHER, "--yolo"],
  },
  {
    ...{ name: "pi", npm: "@earendil-works/pi-coding-agent@0.74.2" },
    ...asked((question) => ["--offline", "-p", question]),
    next: ["--offline", "-c", "-p", FURTHER],
  },
  {
    ...{ name: "cline", npm: "cline@3.0.65" },
    ...asked((question) => [question]),
    next: null,
  },
  {
    // Its system prompt tells, in front of the tools, what is changed in the repository.
    ...{ name: "continue", npm: "@continuedev/cli@1.5.47", otherShare: 0.05 },
    ...asked((question) => ["-p", "--auto", question]),
    next: ["-p", "--auto", "--resume", FURTHER],
  },
  {
    ...{ name: "aider", pip: "aider-chat==0.86.2", hasTools: false },
    ...asked((question) => [
      "--no-git",
      "--yes-always",
      "--no-check-update",
      "--no-show-model-warnings",
      "--message",
      question,
    ]),
    next: null,
  },
  {
    ...{ name: "llm", pip: "llm==0.36", hasTools: false },
    ...asked((question) => [question]),
    next: ["-c", FURTHER],
  },
];
