/** Formats of strings in JSON schemas, by the standards that define them. */
import { type Automaton, automatonOf, both, either, followedBy } from "./automaton.ts";
import { leapSeconds } from "./leap-seconds.ts";
import { parseRegex } from "./regex.ts";

/** The strings of a format. */
export interface Format {
  readonly automaton: Automaton;
  /** Most characters; Infinity where the standard sets no limit. */
  readonly maxLength: number;
  /** A regular expression, cheap for the engine, that matches all strings of the format and perhaps more. */
  readonly superset: string;
}

interface Definition {
  /** A regular expression of exactly its strings, or a function that builds their automaton. */
  readonly exact: string | (() => Automaton);
  readonly superset: string;
  readonly maxLength?: number;
}

const month31 = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])";
const month30 = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)";
const february = "02-(?:0[1-9]|1[0-9]|2[0-8])";
const leapYear = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
const date = `(?:[0-9]{4}-(?:${month31}|${month30}|${february})|${leapYear}-02-29)`;
const dateSuperset = "[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])";
const hour = "(?:[01][0-9]|2[0-3])";
const minute = "[0-5][0-9]";
const time = `${hour}:${minute}:${minute}(?:\\.[0-9]+)?(?:[zZ]|[+-]${hour}:${minute})`;
const timeSuperset = `${hour}:${minute}:(?:[0-5][0-9]|60)(?:\\.[0-9]+)?(?:[zZ]|[+-]${hour}:${minute})`;

const octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const ipv4 = `${octet}(?:\\.${octet}){3}`;
const group = "[0-9a-fA-F]{1,4}";
const last32 = `(?:${group}:${group}|${ipv4})`;
/** RFC 3986, IPv6address. */
const ipv6 = `(?:${[
  `(?:${group}:){6}${last32}`,
  `::(?:${group}:){5}${last32}`,
  `(?:${group})?::(?:${group}:){4}${last32}`,
  `(?:(?:${group}:){0,1}${group})?::(?:${group}:){3}${last32}`,
  `(?:(?:${group}:){0,2}${group})?::(?:${group}:){2}${last32}`,
  `(?:(?:${group}:){0,3}${group})?::${group}:${last32}`,
  `(?:(?:${group}:){0,4}${group})?::${last32}`,
  `(?:(?:${group}:){0,5}${group})?::${group}`,
  `(?:(?:${group}:){0,6}${group})?::`,
].join("|")})`;

const label = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
/** RFC 1123. */
const host = `${label}(?:\\.${label})*`;
const hostSuperset = "[a-zA-Z0-9][a-zA-Z0-9.-]*";

const atom = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+";
const domain = `(?:${host}|\\[(?:${ipv4}|[iI][pP][vV]6:${ipv6})\\])`;

/** RFC 5321: a mailbox, whose local part has 64 characters at most. */
function mailbox(): Automaton {
  const local = `(?:${atom}(?:\\.${atom})*|"(?:[ !#-\\[\\]-~]|\\\\[ -~])*")`;
  return followedBy(both(parsed(local), parsed(".{1,64}")), parsed(`@${domain}`));
}

/** RFC 3986 and, with characters beyond ASCII, RFC 3987. */
function addresses({ beyond = "", beyondQuery = "" } = {}) {
  const escaped = "%[0-9a-fA-F]{2}";
  const plain = `a-zA-Z0-9._~!$&'()*+,;=${beyond}-`;
  const character = `(?:[:@${plain}]|${escaped})`;
  const named = `(?:[${plain}]|${escaped})`;
  const future = "[vV][0-9a-fA-F]+\\.[:a-zA-Z0-9._~!$&'()*+,;=-]+";
  const authority = `(?:(?:[:${plain}]|${escaped})*@)?(?:\\[(?:${ipv6}|${future})\\]|${named}*)(?::[0-9]*)?`;
  const path = `(?:/${character}*)*`;
  const query = `(?:\\?(?:[/?:@${plain}${beyondQuery}]|${escaped})*)?`;
  const fragment = `(?:#(?:[/?:@${plain}]|${escaped})*)?`;
  const scheme = "[a-zA-Z][a-zA-Z0-9+.-]*";
  const absolute = `/(?:${character}+${path})?`;
  const noColon = `(?:[@${plain}]|${escaped})+`;
  const whole = `${scheme}:(?://${authority}${path}|${absolute}|${character}+${path}|)${query}${fragment}`;
  const relative = `(?://${authority}${path}|${absolute}|${noColon}${path}|)${query}${fragment}`;
  const any = `[\\[\\]%#/?:@${plain}${beyondQuery}]*`;
  return { whole, relative, wholeSuperset: `${scheme}:${any}`, relativeSuperset: any };
}

const BEYOND = [
  ...["\\u{A0}-\\u{D7FF}", "\\u{F900}-\\u{FDCF}", "\\u{FDF0}-\\u{FFEF}"],
  ...Array.from({ length: 13 }, (_, i) => `\\u{${(i + 1).toString(16)}0000}-\\u{${(i + 1).toString(16)}FFFD}`),
  "\\u{E1000}-\\u{EFFFD}",
].join("");
const PRIVATE = "\\u{E000}-\\u{F8FF}\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}";
const uris = addresses();
const iris = addresses({ beyond: BEYOND, beyondQuery: PRIVATE });

/** RFC 6901. */
const pointer = "(?:/(?:[^/~]|~[01])*)*";
const pointerSuperset = "(?:/[^/]*)*";
/** RFC 3339, appendix A. */
const clock = "(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
const days = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)";

const DEFINITIONS: Readonly<Record<string, Definition>> = {
  date: { exact: date, superset: dateSuperset },
  time: { exact: clockTimes, superset: timeSuperset },
  "date-time": {
    exact: () => followedBy(parsed(`${date}[tT]`), clockTimes()),
    superset: `${dateSuperset}[tT]${timeSuperset}`,
  },
  duration: { exact: `P(?:${days}(?:T${clock})?|T${clock}|[0-9]+W)`, superset: "P[0-9YMDTHSW]+" },
  uuid: {
    exact: "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    superset: "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
  },
  email: { exact: mailbox, superset: "[ -~]+@[a-zA-Z0-9:.\\[\\]-]+", maxLength: 254 },
  ipv4: { exact: ipv4, superset: ipv4 },
  ipv6: { exact: ipv6, superset: "[0-9a-fA-F:.]+" },
  hostname: { exact: host, superset: hostSuperset, maxLength: 253 },
  uri: { exact: uris.whole, superset: uris.wholeSuperset },
  "uri-reference": { exact: `(?:${uris.relative}|${uris.whole})`, superset: uris.relativeSuperset },
  iri: { exact: iris.whole, superset: iris.wholeSuperset },
  "iri-reference": { exact: `(?:${iris.relative}|${iris.whole})`, superset: iris.relativeSuperset },
  "json-pointer": { exact: pointer, superset: pointerSuperset },
  "relative-json-pointer": {
    exact: `(?:0|[1-9][0-9]*)(?:#|${pointer})`,
    superset: `(?:0|[1-9][0-9]*)(?:#|${pointerSuperset})`,
  },
};

export const FORMATS: readonly string[] = Object.keys(DEFINITIONS);

const known = new Map<string, Format>();

/** The format of this name; null for an unknown name. */
export function formatOf(name: string): Format | null {
  if (!Object.hasOwn(DEFINITIONS, name)) return null;
  const made = known.get(name);
  if (made) return made;
  const { exact, superset, maxLength = Number.POSITIVE_INFINITY } = DEFINITIONS[name]!;
  const format = { automaton: typeof exact === "string" ? parsed(exact) : exact(), maxLength, superset };
  known.set(name, format);
  return format;
}

/** Intersection of several automata. */
export function allOf(automata: readonly Automaton[]): Automaton {
  return automata.reduce((all, one) => both(all, one));
}

function parsed(pattern: string): Automaton {
  return automatonOf(parseRegex(pattern, "format", { isWhole: true }).tree);
}

function clockTimes(): Automaton {
  return either(parsed(time), leapSeconds());
}
