/** Constraints, a module of their own for those who load them late. Re-exports only. */
export { type ConstraintMatcher, checkConstraint, createMatcher, type Vocabulary } from "./masks.ts";
export { type Output, readSchema } from "./output-schema.ts";
