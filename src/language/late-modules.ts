/** Loads modules that most calls do without. Whoever loads the model provides it, since pages load modules by address. */
export interface LateModules {
  /** Loads the parsers of answers: thinking and tool calls. */
  answers(): Promise<typeof import("../text/answer/index.ts")>;
  /** Loads the constraints of answers: grammars and schemas. */
  constraints(): Promise<typeof import("../text/constraints/index.ts")>;
}
