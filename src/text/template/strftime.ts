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

function directive(letter: string, date: Date): string | Digits | undefined {
  const year = date.getFullYear();
  switch (letter) {
    case "a":
      return DAYS[date.getDay()]!.slice(0, 3);
    case "A":
      return DAYS[date.getDay()]!;
    case "b":
      return MONTHS[date.getMonth()]!.slice(0, 3);
    case "B":
      return MONTHS[date.getMonth()]!;
    case "C":
      return digits(Math.floor(year / 100));
    case "d":
      return digits(date.getDate());
    case "e":
      return digits(date.getDate(), 2, " ");
    case "f":
      return String(date.getMilliseconds() * 1000).padStart(6, "0");
    case "g":
      return digits(isoWeek(date).year % 100);
    case "G":
      return digits(isoWeek(date).year, 1);
    case "H":
      return digits(date.getHours());
    case "I":
      return digits(hour12(date));
    case "j":
      return digits(dayOfYear(date), 3);
    case "k":
      return digits(date.getHours(), 2, " ");
    case "l":
      return digits(hour12(date), 2, " ");
    case "m":
      return digits(date.getMonth() + 1);
    case "M":
      return digits(date.getMinutes());
    case "n":
      return "\n";
    case "p":
      return date.getHours() < 12 ? "AM" : "PM";
    case "P":
      return date.getHours() < 12 ? "am" : "pm";
    case "s":
      return digits(Math.floor(date.getTime() / 1000), 1);
    case "S":
      return digits(date.getSeconds());
    case "t":
      return "\t";
    case "u":
      return digits(date.getDay() || 7, 1);
    case "U":
      return digits(Math.floor((dayOfYear(date) + 6 - date.getDay()) / 7));
    case "V":
      return digits(isoWeek(date).week);
    case "w":
      return digits(date.getDay(), 1);
    case "W":
      return digits(Math.floor((dayOfYear(date) + 6 - ((date.getDay() + 6) % 7)) / 7));
    case "y":
      return digits(year % 100);
    case "Y":
      return digits(year, 1);
    // A date without a time zone has neither zone name nor offset.
    case "z":
    case "Z":
    case ":z":
      return "";
    case "%":
      return "%";
  }
  return undefined;
}

/** `date` in local time; directives take glibc's flags `-`, `_`, `0`, `^`, `#` and a width. */
export function strftime(format: string, date: Date): string {
  chargeText(format.length);
  return format.replace(
    /%([-_0^#]*)(\d*)([EO]?)(:z|.)/gsu,
    (all, flags: string, width: string, _modifier, letter: string) => {
      if (letter === "f" && all !== "%f") return all;
      const compound = COMPOUND[letter];
      const found = compound === undefined ? directive(letter, date) : strftime(compound, date);
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
