/** Parts of Jinja that no public chat template uses and that are not implemented: refused by name. */
const FILTERS = new Set(
  "batch center filesizeformat format groupby pprint slice striptags truncate urlencode urlize wordwrap xmlattr".split(
    " ",
  ),
);

/** Unimplemented methods of str. */
export const LEFT_OUT_METHODS: ReadonlySet<string> = new Set(
  "casefold encode expandtabs format format_map translate".split(" "),
);

export function unsupported(kind: "filter" | "method" | "operator", name: string): string {
  return `Jinja's ${kind} ${name} is not supported`;
}

/** Message for an unknown filter or test. */
export function unknown(kind: "filter" | "test", name: string): string {
  return kind === "filter" && FILTERS.has(name) ? unsupported(kind, name) : `No ${kind} named '${name}'.`;
}
