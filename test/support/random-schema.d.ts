/** Numbers from 0 to 1 that a seed begins. */
export function randomNumbers(seed: number): () => number;
/** A schema. */
export function randomSchema(random: () => number, depth?: number): Record<string, unknown>;
/** A schema of which `#` is the whole. */
export function schemaOf(seed: number): Record<string, unknown>;
