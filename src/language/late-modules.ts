/** What loads the modules that most calls of a model do without: who loads the model gives it, since pages load them by address. */
export interface LateModules {
  /** Parsers of answers: thinking and calls of tools. */
  answers(): Promise<typeof import("../text/answer/index.ts")>;
  /** Constraints of answers. */
  constraints(): Promise<typeof import("../text/constraints/index.ts")>;
}
