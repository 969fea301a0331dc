/** All filters by name: Jinja's own, and tojson as chat templates define it. */
import { TemplateFault } from "./faults.ts";
import { HTML_FILTERS } from "./filters-html.ts";
import { type CallByName, ITEM_FILTERS, mapFilter, selectFilter } from "./filters-items.ts";
import { TEXT_FILTERS } from "./filters-text.ts";
import { toJson } from "./json.ts";
import { unknown } from "./left-out.ts";
import { toText } from "./print.ts";
import { bind, type Signature, signature } from "./signature.ts";
import { TESTS } from "./tests.ts";
import { isTrue, type Keywords, Undefined, type Value } from "./values.ts";

/** A filter or test; `callWith` is for filters of arbitrary arguments. */
export interface Filter extends Signature {
  readonly callWith?: (value: Value, args: readonly Value[], keywords: Keywords) => Value;
}

type Call = NonNullable<Filter["callWith"]>;

/** A filter that takes arbitrary arguments. */
function open(callWith: Call): Filter {
  return { ...signature("value", (value: Value) => callWith(value, [], new Map())), callWith };
}

function byName(kind: "filter" | "test", table: ReadonlyMap<string, Filter>): CallByName {
  return (name, value, args, keywords) => {
    const found = table.get(toText(name));
    if (!found) throw new TemplateFault("TemplateRuntimeError", unknown(kind, toText(name)));
    return callFilter(toText(name), found, value, args, keywords);
  };
}

/** Calls a filter or test with arguments. */
export function callFilter(
  name: string,
  filter: Filter,
  value: Value,
  args: readonly Value[],
  keywords: Keywords,
): Value {
  if (filter.callWith) return filter.callWith(value, args, keywords);
  return filter.run(...bind(name, filter, [value, ...args], keywords));
}

const table = new Map<string, Filter>();
const callFilterByName = byName("filter", table);
const callTestByName = byName("test", TESTS);

function select(byAttribute: boolean, keeps: boolean, label: string): Filter {
  return open((value, args, keywords) =>
    selectFilter({ byAttribute, keeps, label }, value, args, keywords, callTestByName),
  );
}

function orDefault(value: Value, fallback: Value = "", boolean: Value = false): Value {
  return value instanceof Undefined || (isTrue(boolean) && !isTrue(value)) ? fallback : value;
}

function json(
  value: Value,
  ascii: Value = false,
  indent: Value = null,
  separators: Value = null,
  sortKeys: Value = false,
): string {
  return toJson(value, { ensureAscii: isTrue(ascii), indent, separators, sortKeys: isTrue(sortKeys) });
}

const others: Record<string, Filter> = {
  d: signature("value default_value? boolean?", orDefault),
  default: signature("value default_value? boolean?", orDefault),
  map: open((value, args, keywords) => mapFilter(value, args, keywords, callFilterByName)),
  reject: select(false, false, "sync_do_reject"),
  rejectattr: select(true, false, "sync_do_rejectattr"),
  select: select(false, true, "sync_do_select"),
  selectattr: select(true, true, "sync_do_selectattr"),
  tojson: signature("x ensure_ascii? indent? separators? sort_keys?", json),
};

for (const group of [ITEM_FILTERS, TEXT_FILTERS, HTML_FILTERS, others])
  for (const [name, filter] of Object.entries(group)) table.set(name, filter);

export const FILTERS: ReadonlyMap<string, Filter> = table;
