/** Modules that are loaded when a model or call first needs them. The worker of pages has others in their place. */

/** Parsers of answers: thinking and calls of tools. */
export const loadAnswers = () => import("../text/answer/index.ts");

/** Constraints of answers. */
export const loadConstraints = () => import("../text/constraints/index.ts");
