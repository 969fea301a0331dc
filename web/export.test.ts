/** Conversations as Markdown. */
import { expect, it } from "vitest";
import { markdownOf } from "./export.ts";

it("has all that was said, with code that ends where it ends", () => {
  const toolCalls = [{ id: "a", name: "clock", arguments: '{"zone": "```"}' }];
  const messages = [
    { role: "user", content: "Hi", attachments: [{ name: "a.txt", text: "A." }] },
    { role: "assistant", content: "", reasoning: "Hm.\nWell.", toolCalls },
    { role: "tool", content: "Noon", toolCallId: "a" },
    { role: "assistant", content: "It is **noon**." },
  ] as const;
  const conversation = {
    id: "1",
    title: "Time",
    changedAt: 0,
    system: "Be brief.",
    messages: structuredClone(messages),
  };
  expect(markdownOf(conversation as never)).toBe(
    [
      ...["# Time", "## System", "Be brief.", "## You", "Hi", "a.txt:", "A.", "## Model", "> Hm.\n> Well."],
      ...["### Tool: clock", '````\n{"zone": "```"}\n````', "### Result", "```\nNoon\n```", "## Model"],
      "It is **noon**.\n",
    ].join("\n\n"),
  );
});
