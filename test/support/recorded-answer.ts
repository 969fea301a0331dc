/** One recorded answer, and what all of them are about. */
import type { KnownTool } from "../../src/text/answer/events.ts";

export interface Recorded {
  readonly name: string;
  /** As much of a chat template as tells how its model writes. */
  readonly template: string;
  readonly tools: readonly KnownTool[];
  /** Whether the prompt ends within thinking. */
  readonly isThinking?: boolean;
  readonly answer: string;
  readonly text?: string;
  readonly reasoning?: string;
  /** Names with arguments: as text where it must be this one, else as values. */
  readonly calls?: readonly (readonly [name: string, args: unknown])[];
}

const tools: readonly KnownTool[] = [
  {
    name: "get_weather",
    parameters: {
      type: "object",
      properties: { city: { type: "string" }, days: { type: "integer" }, units: { enum: ["c", "f"] } },
      required: ["city"],
    },
  },
  {
    name: "write_file",
    parameters: {
      type: "object",
      properties: {
        path: { type: "string" },
        content: { type: "string" },
        options: { type: "object" },
        tags: { type: "array", items: { type: "string" } },
        force: { type: "boolean" },
      },
    },
  },
  { name: "now" },
];

/** Answers of the models of one template. */
export const answersOf = (
  template: string,
  answers: readonly (Omit<Recorded, "template" | "tools"> & Partial<Recorded>)[],
) => answers.map((one): Recorded => ({ template, tools, ...one }));

export const paris = ["get_weather", { city: "Paris" }] as const;
