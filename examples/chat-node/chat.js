// Talks with a model in the terminal: node chat.js model.pte
import { createInterface } from "node:readline/promises";
import { loadProgram } from "lowbit";

const llm = await loadProgram(process.argv[2] ?? "model.pte");
const chat = llm.createConversation();
const terminal = createInterface({ input: process.stdin });

process.stdout.write("> ");
for await (const line of terminal) {
  for await (const text of chat.send(line, { maxTokens: 200, seed: 1 })) process.stdout.write(text);
  process.stdout.write("\n> ");
}
await llm.dispose();
