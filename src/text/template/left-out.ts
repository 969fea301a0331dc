/** Parts of Jinja that no public chat template uses and that are not implemented: refused by name. */
const FILTERS = new Set(
  (
    "batch center filesizeformat forceescape format groupby pprint random round slice striptags truncate urlencode urlize " +
    "wordcount wordwrap xmlattr"
  ).split(" "),
);

/** Unimplemented methods of str. */
export const LEFT_OUT_METHODS: ReadonlySet<string> = new Set(
  (
    "casefold center encode expandtabs format format_map isascii isdecimal isidentifier isnumeric isprintable istitle " +
    "ljust rjust swapcase translate zfill"
  ).split(" "),
);

export function unsupported(
  kind: "directive of strftime" | "filter" | "function" | "method" | "operator",
  name: string,
): string {
  return `Jinja's ${kind} ${name} is not supported`;
}

/** Message for an unknown filter or test. */
export function unknown(kind: "filter" | "test", name: string): string {
  return kind === "filter" && FILTERS.has(name) ? unsupported(kind, name) : `No ${kind} named '${name}'.`;
}
