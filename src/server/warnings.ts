/** Warnings about what was left out of a request, for the log and a header: by kind and place, never by content. */
import type { RequestRecord } from "./request-record.ts";

/** Takes a sentence about something that is left out. */
export type Warn = (warning: string) => void;

/** Name of the response header for warnings. */
export const WARNING_HEADER = "lowbit-warning";

const WARNINGS_MAX = 20;
const HEADER_MAX = 1000;

/** Gives a function that notes warnings of a request, each once. */
export function warnerOf(record: RequestRecord): Warn {
  return (warning) => {
    const { warnings } = record;
    if (warnings.length < WARNINGS_MAX && !warnings.includes(warning)) warnings.push(warning);
  };
}

/** Value of the header; null without warnings. */
export function warningHeader({ warnings }: RequestRecord): string | null {
  if (warnings.length === 0) return null;
  return warnings
    .join("; ")
    .replace(/[^\x20-\x7e]/g, "?")
    .slice(0, HEADER_MAX);
}
