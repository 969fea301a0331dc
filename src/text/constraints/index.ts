/** Constraints, as a module that can be loaded lazily. Re-exports only. */
export { type ConstraintMatcher, checkConstraint, createMatcher, type Vocabulary } from "./masks.ts";
export { type Output, readSchema } from "./output-schema.ts";
