/** What of a request is left out, told in the log and in a header: by kinds and places, never by what it says. */
import type { RequestRecord } from "./request-record.ts";

/** Takes a sentence about what is left out. */
export type Warn = (warning: string) => void;

/** Header of answers. */
export const WARNING_HEADER = "lowbit-warning";

const WARNINGS_MAX = 20;
const HEADER_MAX = 1000;

/** Notes warnings of a request, each once. */
export function warnerOf(record: RequestRecord): Warn {
  return (warning) => {
    const { warnings } = record;
    if (warnings.length < WARNINGS_MAX && !warnings.includes(warning)) warnings.push(warning);
  };
}

/** Value of the header; null where there is nothing to warn of. */
export function warningHeader({ warnings }: RequestRecord): string | null {
  if (warnings.length === 0) return null;
  return warnings
    .join("; ")
    .replace(/[^\x20-\x7e]/g, "?")
    .slice(0, HEADER_MAX);
}
