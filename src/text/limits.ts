/** Limits on the work of templates and tokenizers from untrusted files, as users set them. */
import { InvalidArgumentError } from "../errors.ts";

/**
 * Fills in defaults for limits that are not given. InvalidArgumentError for unknown names, and numbers that are not positive.
 */
export function completeLimits<L extends object>(limits: Partial<L>, defaults: L): L {
  const all = { ...defaults };
  for (const [name, value] of Object.entries(limits) as [keyof L & string, unknown][]) {
    if (!Object.hasOwn(defaults, name))
      throw new InvalidArgumentError(`limits: expected ${Object.keys(defaults).join(", ")} but found ${name}`);
    if (value === undefined) continue;
    if (typeof value !== "number" || !(value > 0))
      throw new InvalidArgumentError(`limits.${name}: expected a number above 0 but found ${value}`);
    all[name] = value as L[typeof name];
  }
  return all;
}
