/** Python's `datetime.strftime` in the C locale of a date without a time zone, with the directives that chat templates use. */
import { fault } from "./faults.ts";
import { unsupported } from "./left-out.ts";
import { chargeText } from "./limits.ts";

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = "January February March April May June July August September October November December".split(" ");

const digits = (value: number, width = 2, pad = "0") => String(value).padStart(width, pad);

function dayOfYear(date: Date): number {
  const start = Date.UTC(date.getFullYear(), 0, 1);
  return Math.round((Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) - start) / 86_400_000) + 1;
}

/** Directives that are abbreviations of others. */
const COMPOUND: Readonly<Record<string, string>> = {
  c: "%a %b %e %H:%M:%S %Y",
  D: "%m/%d/%y",
  F: "%Y-%m-%d",
  R: "%H:%M",
  T: "%H:%M:%S",
  x: "%m/%d/%y",
  X: "%H:%M:%S",
};

const DIRECTIVES: Readonly<Record<string, (date: Date) => string>> = {
  a: (date) => DAYS[date.getDay()]!.slice(0, 3),
  A: (date) => DAYS[date.getDay()]!,
  b: (date) => MONTHS[date.getMonth()]!.slice(0, 3),
  B: (date) => MONTHS[date.getMonth()]!,
  d: (date) => digits(date.getDate()),
  e: (date) => digits(date.getDate(), 2, " "),
  H: (date) => digits(date.getHours()),
  I: (date) => digits(date.getHours() % 12 || 12),
  j: (date) => digits(dayOfYear(date), 3),
  m: (date) => digits(date.getMonth() + 1),
  M: (date) => digits(date.getMinutes()),
  p: (date) => (date.getHours() < 12 ? "AM" : "PM"),
  S: (date) => digits(date.getSeconds()),
  y: (date) => digits(date.getFullYear() % 100),
  Y: (date) => digits(date.getFullYear(), 1),
  // A date without a time zone has neither zone name nor offset.
  ...{ z: () => "", Z: () => "" },
  "%": () => "%",
};

/** `date` in local time. With glibc's flag `-`, numbers are not padded. */
export function strftime(format: string, date: Date): string {
  chargeText(format.length);
  return format.replace(/%(-?)(.)/gsu, (all, flag: string, letter: string) => {
    const compound = COMPOUND[letter];
    const text = compound === undefined ? DIRECTIVES[letter]?.(date) : strftime(compound, date);
    if (text === undefined) fault("UnsupportedError", unsupported("directive of strftime", all));
    return flag ? text.replace(/^[0 ]+(?=.)/, "") : text;
  });
}
