/** Python's `datetime.strftime` in the C locale, as glibc formats a date without a time zone. */
import { valueError } from "./faults.ts";
import { chargeText } from "./limits.ts";

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = "January February March April May June July August September October November December".split(" ");

/** A number, its width in digits, and the character that pads it by default in glibc. */
interface Digits {
  readonly value: number;
  readonly width: number;
  readonly pad: string;
}

const digits = (value: number, width = 2, pad = "0"): Digits => ({ value, width, pad });

function dayOfYear(date: Date): number {
  const start = Date.UTC(date.getFullYear(), 0, 1);
  return Math.round((Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) - start) / 86_400_000) + 1;
}

/** The ISO 8601 week, and the year that it belongs to. */
function isoWeek(date: Date): { year: number; week: number } {
  const thursday = new Date(Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()));
  thursday.setUTCDate(thursday.getUTCDate() + 4 - (thursday.getUTCDay() || 7));
  const year = thursday.getUTCFullYear();
  return { year, week: Math.floor((thursday.getTime() - Date.UTC(year, 0, 1)) / 86_400_000 / 7) + 1 };
}

const hour12 = (date: Date) => date.getHours() % 12 || 12;

/** Directives that are abbreviations of others. */
const COMPOUND: Readonly<Record<string, string>> = {
  c: "%a %b %e %H:%M:%S %Y",
  D: "%m/%d/%y",
  F: "%Y-%m-%d",
  h: "%b",
  r: "%I:%M:%S %p",
  R: "%H:%M",
  T: "%H:%M:%S",
  x: "%m/%d/%y",
  X: "%H:%M:%S",
};

/** Week of the year, which begins at the first day `firstWeekday` of the year (0 is Sunday); 0 before that. */
const weekOf = (date: Date, firstWeekday: number) =>
  Math.floor((dayOfYear(date) + 6 - ((date.getDay() + 7 - firstWeekday) % 7)) / 7);

const DIRECTIVES: Readonly<Record<string, (date: Date) => string | Digits>> = {
  a: (date) => DAYS[date.getDay()]!.slice(0, 3),
  A: (date) => DAYS[date.getDay()]!,
  b: (date) => MONTHS[date.getMonth()]!.slice(0, 3),
  B: (date) => MONTHS[date.getMonth()]!,
  C: (date) => digits(Math.floor(date.getFullYear() / 100)),
  d: (date) => digits(date.getDate()),
  e: (date) => digits(date.getDate(), 2, " "),
  f: (date) => String(date.getMilliseconds() * 1000).padStart(6, "0"),
  g: (date) => digits(isoWeek(date).year % 100),
  G: (date) => digits(isoWeek(date).year, 1),
  H: (date) => digits(date.getHours()),
  I: (date) => digits(hour12(date)),
  j: (date) => digits(dayOfYear(date), 3),
  k: (date) => digits(date.getHours(), 2, " "),
  l: (date) => digits(hour12(date), 2, " "),
  m: (date) => digits(date.getMonth() + 1),
  M: (date) => digits(date.getMinutes()),
  n: () => "\n",
  p: (date) => (date.getHours() < 12 ? "AM" : "PM"),
  P: (date) => (date.getHours() < 12 ? "am" : "pm"),
  s: (date) => digits(Math.floor(date.getTime() / 1000), 1),
  S: (date) => digits(date.getSeconds()),
  t: () => "\t",
  u: (date) => digits(date.getDay() || 7, 1),
  U: (date) => digits(weekOf(date, 0)),
  V: (date) => digits(isoWeek(date).week),
  w: (date) => digits(date.getDay(), 1),
  W: (date) => digits(weekOf(date, 1)),
  y: (date) => digits(date.getFullYear() % 100),
  Y: (date) => digits(date.getFullYear(), 1),
  // A date without a time zone has neither zone name nor offset.
  ...{ z: () => "", Z: () => "", ":z": () => "" },
  "%": () => "%",
};

/** `date` in local time; directives take glibc's flags `-`, `_`, `0`, `^`, `#` and a width. */
export function strftime(format: string, date: Date): string {
  chargeText(format.length);
  return format.replace(
    /%([-_0^#]*)(\d*)([EO]?)(:z|.)/gsu,
    (all, flags: string, width: string, _modifier, letter: string) => {
      if (letter === "f" && all !== "%f") return all;
      const compound = COMPOUND[letter];
      const found = compound === undefined ? DIRECTIVES[letter]?.(date) : strftime(compound, date);
      if (found === undefined) return all;
      return finish(found, flags, width === "" ? undefined : Number(width), letter);
    },
  );
}

function finish(found: string | Digits, flags: string, width: number | undefined, letter: string): string {
  if (width !== undefined && width > 1000) valueError(`strftime: a width of at most 1000 is supported, found ${width}`);
  const padding = /[-_0]/.exec([...flags].reverse().join(""))?.[0];
  let text = typeof found === "string" ? found : String(found.value);
  const own = typeof found === "string" ? { width: 0, pad: " " } : found;
  const pad = padding === "_" ? " " : padding === "0" ? "0" : own.pad;
  if (padding !== "-" || width !== undefined)
    text = text.padStart(padding === "-" ? (width ?? 0) : (width ?? own.width), pad);
  if (flags.includes("^")) text = text.toUpperCase();
  if (flags.includes("#")) text = letter === "p" || letter === "Z" ? text.toLowerCase() : text.toUpperCase();
  return text;
}
