/** Ids and times as the APIs write them. */
import { randomUUID } from "node:crypto";

/** A new id, such as `chatcmpl-…`. */
export function newId(kind: string, separator = "-"): string {
  return `${kind}${separator}${randomUUID().replaceAll("-", "")}`;
}

/** Seconds since 1970. */
export function unixTime(): number {
  return Math.floor(Date.now() / 1000);
}
