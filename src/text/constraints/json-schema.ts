/**
 * Compiles JSON schemas to grammars. The schema accepts whatever the grammar generates; a keyword that cannot be enforced is
 * refused. Keys come in the schema's order, and unnamed properties only where the schema mentions them.
 */
import { InvalidArgumentError } from "../../errors.ts";
import { GrammarFollower } from "./follower.ts";
import { choice, endingRules, type Grammar, type Node, partsOf, rule, text } from "./grammar.ts";
import { jsonRules, literal } from "./json-text.ts";
import { arrayOf } from "./schema-arrays.ts";
import { canonical, checkedKeywords, isSchema, joined, KEYWORDS_OF, refused, type Schema } from "./schema-keywords.ts";
import { numberOf } from "./schema-numbers.ts";
import { objectOf } from "./schema-objects.ts";
import type { SchemaScope } from "./schema-scope.ts";
import { stringOf } from "./schema-strings.ts";

const TYPES = ["object", "array", "string", "number", "integer", "boolean", "null"];
const CHARACTERS_MAX = 200_000;
const DEPTH_MAX = 64;
const RULES_MAX = 5_000;
/** Matches no text: a choice without options. */
const NOTHING: Node = { kind: "choice", options: [] };

/**
 * The grammar of a schema.
 *
 * @throws UnsupportedError for keywords that cannot be enforced, with their place.
 * @throws InvalidArgumentError for an invalid schema, and for one that accepts nothing.
 */
export function schemaGrammar(schema: unknown): Grammar {
  const root = copied(schema);
  // Schemas contain each other, so one that accepts nothing is found only when all are compiled: then compile again without it.
  const never = new Set<string>();
  for (;;) {
    const known = never.size;
    const grammar = new SchemaCompiler(root, never).grammar();
    if (never.size > known) continue;
    if (grammar === null) throw new InvalidArgumentError("schema: expected one that accepts a value");
    return grammar;
  }
}

/** A copy of a schema as JSON. InvalidArgumentError where it is not JSON or is too long. */
function copied(schema: unknown): unknown {
  let text: string;
  try {
    text = JSON.stringify(schema) ?? "null";
  } catch (cause) {
    throw new InvalidArgumentError(`schema: expected JSON: ${(cause as Error).message}`, { cause });
  }
  if (text.length > CHARACTERS_MAX)
    throw new InvalidArgumentError(
      `schema: expected at most ${CHARACTERS_MAX} characters of JSON but found ${text.length}`,
    );
  return JSON.parse(text);
}

class SchemaCompiler implements SchemaScope {
  readonly #root: unknown;
  readonly #rules = new Map<string, Node>();
  /** Rules of referenced schemas, by their JSON pointers. */
  readonly #references = new Map<string, Node>();
  /** Pointers to schemas that accept nothing. */
  readonly #never: Set<string>;
  /** References being resolved, with the schemas that they are merged with. */
  readonly #joining = new Set<string>();
  #depth = 0;

  constructor(root: unknown, never: Set<string>) {
    this.#root = root;
    this.#never = never;
  }

  /** The grammar; null for a schema that accepts nothing. Adds pointers that turn out to accept nothing to the set given. */
  grammar(): Grammar | null {
    const root = this.node(this.#root, "#");
    const rules = new Map<string, Node>([...this.#rules, ...jsonRules()]);
    const ending = endingRules(rules);
    for (const [pointer, reference] of this.#references)
      if (reference.kind === "rule" && !ending.has(reference.name)) this.#never.add(pointer);
    return root && withoutUnused(new Map([["root", root], ...rules]));
  }

  define(node: Node): Node {
    if (node.kind === "rule") return node;
    return this.recursive(() => node);
  }

  recursive(make: (self: Node) => Node): Node {
    const name = `s${this.#rules.size}`;
    if (this.#rules.size >= RULES_MAX) throw new InvalidArgumentError("schema: expected a schema of less size");
    this.#rules.set(name, text(""));
    this.#rules.set(name, make(rule(name)));
    return rule(name);
  }

  node(schema: unknown, at: string): Node | null {
    if (++this.#depth > DEPTH_MAX) throw new InvalidArgumentError(`schema ${at}: expected at most ${DEPTH_MAX} levels`);
    try {
      return this.#any(schema, at);
    } finally {
      this.#depth--;
    }
  }

  #any(schema: unknown, at: string): Node | null {
    if (schema === true) return rule("value");
    if (schema === false) return null;
    if (!isSchema(schema))
      throw new InvalidArgumentError(`schema ${at}: expected a schema but found ${JSON.stringify(schema)}`);
    const said = checkedKeywords(schema, at);
    const keys = Object.keys(said);
    if (keys.length === 0) return rule("value");
    if (keys.length === 1 && keys[0] === "$ref") return this.#reference(said.$ref, at);
    if (said.$ref !== undefined) {
      const { $ref, ...rest } = said;
      return this.#joinedReference($ref, rest, at);
    }
    if (said.allOf !== undefined) return this.#all(said, at);
    if (said.anyOf !== undefined || said.oneOf !== undefined) return this.#alternatives(said, at);
    if (said.enum !== undefined || said.const !== undefined) return this.#values(said, at);
    return this.#typed(said, at);
  }

  /** A rule for the target of a pointer, so that schemas may be recursive; null where the target accepts nothing. */
  #reference(pointer: unknown, at: string): Node | null {
    const { key, schema } = this.#resolved(pointer, at);
    if (this.#never.has(key)) return null;
    const known = this.#references.get(key);
    if (known) return known;
    const found = this.recursive((self) => {
      this.#references.set(key, self);
      const node = this.node(schema, key);
      if (node === null) this.#never.add(key);
      return node ?? NOTHING;
    });
    return this.#never.has(key) ? null : found;
  }

  #joinedReference(pointer: unknown, rest: Schema, at: string): Node | null {
    const { key, schema } = this.#resolved(pointer, at);
    if (this.#joining.has(key)) throw refused(at, "a reference to itself beside other keywords");
    this.#joining.add(key);
    try {
      return this.#any(joined(this.#plain(schema, key), rest, at), at);
    } finally {
      this.#joining.delete(key);
    }
  }

  #resolved(pointer: unknown, at: string): { key: string; schema: unknown } {
    if (typeof pointer !== "string" || !/^#(\/|$)/.test(pointer))
      throw refused(
        `${at}/$ref`,
        `a reference other than # and #/…, such as ${JSON.stringify(pointer)?.slice(0, 80)},`,
      );
    let found: unknown = this.#root;
    for (const part of pointer.split("/").slice(1)) {
      const name = decodeURIComponent(part.replace(/%(?![0-9a-fA-F]{2})/g, "%25"))
        .replaceAll("~1", "/")
        .replaceAll("~0", "~");
      const isThere = typeof found === "object" && found !== null && Object.hasOwn(found, name);
      if (!isThere) throw new InvalidArgumentError(`schema ${at}/$ref: expected a schema at ${pointer} but found none`);
      found = (found as Record<string, unknown>)[name];
    }
    return { key: pointer, schema: found };
  }

  /** A schema without the keywords that do not constrain values. */
  #plain(schema: unknown, at: string): Schema | boolean {
    if (typeof schema === "boolean") return schema;
    if (!isSchema(schema))
      throw new InvalidArgumentError(`schema ${at}: expected a schema but found ${JSON.stringify(schema)}`);
    return checkedKeywords(schema, at);
  }

  #all({ allOf, ...rest }: Schema, at: string): Node | null {
    let whole: Schema | boolean = rest;
    for (const [index, part] of list(allOf, `${at}/allOf`).entries())
      whole = joined(whole, this.#withoutReference(part, `${at}/allOf/${index}`), at);
    return this.node(whole, at);
  }

  /** A schema with its `$ref` replaced by the target, merged with the keywords beside it. */
  #withoutReference(schema: unknown, at: string): Schema | boolean {
    const plain = this.#plain(schema, at);
    if (typeof plain === "boolean" || plain.$ref === undefined) return plain;
    const { $ref, ...rest } = plain;
    const { key, schema: target } = this.#resolved($ref, at);
    if (this.#joining.has(key)) throw refused(at, "a reference to itself beside other keywords");
    this.#joining.add(key);
    try {
      return joined(this.#withoutReference(target, key), rest, at);
    } finally {
      this.#joining.delete(key);
    }
  }

  #alternatives(said: Schema, at: string): Node | null {
    const keyword = said.oneOf === undefined ? "anyOf" : "oneOf";
    const { [keyword]: alternatives, ...rest } = said;
    const branches = list(alternatives, `${at}/${keyword}`).map((branch, index) =>
      Object.keys(rest).length === 0
        ? (branch as Schema | boolean)
        : joined(rest, this.#withoutReference(branch, `${at}/${keyword}/${index}`), at),
    );
    const disjoint = keyword === "oneOf" ? this.#disjoint(branches, `${at}/oneOf`) : branches;
    const nodes = disjoint.map((branch, index) => this.node(branch, `${at}/${keyword}/${index}`));
    const possible = nodes.filter((node) => node !== null);
    return possible.length === 0 ? null : choice(possible.map((node) => this.define(node)));
  }

  /** Checks that no value satisfies several branches of oneOf, as such a value would be invalid; returns the branches. */
  #disjoint(branches: readonly (Schema | boolean)[], at: string): readonly (Schema | boolean)[] {
    const plain = branches.map((branch, index) => this.#withoutReference(branch, `${at}/${index}`));
    // A value that is no object satisfies every branch that has only keywords of objects, so oneOf refuses it.
    const typed =
      plain.length > 1 && plain.every(isOfObjects) ? plain.map((one) => ({ ...one, type: "object" })) : null;
    const all = typed ?? plain;
    for (const [index, a] of all.entries())
      for (const b of all.slice(0, index))
        if (!areDisjoint(a, b, (schema) => this.#withoutReference(schema, at)))
          throw refused(at, "alternatives of which several may accept a value");
    return typed ?? branches;
  }

  #values(said: Schema, at: string): Node | null {
    const { enum: values, const: constant, type, ...rest } = said;
    let all = values === undefined ? [constant] : list(values, `${at}/enum`, 0);
    if (values !== undefined && "const" in said) all = all.filter((value) => canonical(value) === canonical(constant));
    const types = type === undefined ? null : typesOf(type, at);
    const typed = all.filter((value) => types === null || types.some((type) => isOfType(value, type)));
    const allowed = typed.filter((value) => this.#allows(rest, value, at));
    const unlike = new Map(allowed.map((value) => [canonical(value), value]));
    return unlike.size === 0 ? null : choice([...unlike.values()].map(literal));
  }

  /** Whether keywords beside `enum` or `const` allow this value. */
  #allows(keywords: Schema, value: unknown, at: string): boolean {
    const type = TYPES.find((type) => type !== "integer" && isOfType(value, type))!;
    const about = Object.keys(keywords).filter((keyword) => KEYWORDS_OF[type]?.includes(keyword));
    if (about.length === 0) return true;
    if (type === "object" || type === "array") throw refused(`${at}/${about[0]}`, "this keyword beside enum or const");
    const node = this.#ofType(type, keywords, at);
    if (node === null) return false;
    const follower = new GrammarFollower(new Map([...jsonRules(), ...this.#rules, ["root", node]]));
    return follower.after([...new TextEncoder().encode(JSON.stringify(value))])?.canEnd ?? false;
  }

  #typed({ type, ...keywords }: Schema, at: string): Node | null {
    // Keywords of one type do not constrain values of others.
    const types = type === undefined ? TYPES : typesOf(type, at);
    const unique = types.filter((type) => !(type === "integer" && types.includes("number")));
    const nodes = unique.map((type) => this.#ofType(type, keywords, at)).filter((node) => node !== null);
    return nodes.length === 0 ? null : choice(nodes);
  }

  #ofType(type: string, keywords: Schema, at: string): Node | null {
    switch (type) {
      case "object":
        return objectOf(keywords, at, this);
      case "array":
        return arrayOf(keywords, at, this);
      case "string":
        return stringOf(keywords, at, this);
      case "number":
      case "integer":
        return numberOf(keywords, at, type === "integer");
      default:
        return rule(type);
    }
  }
}

function list(value: unknown, at: string, least = 1): readonly unknown[] {
  if (Array.isArray(value) && value.length >= least) return value;
  throw new InvalidArgumentError(`schema ${at}: expected a list but found ${JSON.stringify(value)?.slice(0, 80)}`);
}

function typesOf(type: unknown, at: string): string[] {
  const types = [type].flat();
  for (const one of types)
    if (!TYPES.includes(one as string))
      throw new InvalidArgumentError(
        `schema ${at}/type: expected ${TYPES.join(", ")} but found ${JSON.stringify(one)}`,
      );
  return [...new Set(types as string[])];
}

function isOfType(value: unknown, type: string): boolean {
  if (type === "null") return value === null;
  if (type === "array") return Array.isArray(value);
  if (type === "object") return isSchema(value);
  if (type === "integer") return Number.isInteger(value);
  return typeof value === type;
}

/** Whether no value is accepted by both schemas, judged by types, values, or a property that both require. */
function areDisjoint(a: Schema | boolean, b: Schema | boolean, plain: (schema: unknown) => Schema | boolean): boolean {
  if (a === false || b === false) return true;
  if (a === true || b === true) return false;
  const [typesA, typesB] = [valueTypes(a), valueTypes(b)];
  if (typesA && typesB && !typesA.some((type) => typesB.some((other) => overlap(type, other)))) return true;
  const [valuesA, valuesB] = [valuesOf(a), valuesOf(b)];
  if (valuesA && valuesB) return !valuesA.some((value) => valuesB.includes(value));
  if (!isOnly(typesA, "object") && !isOnly(typesB, "object")) return false;
  const required = (schema: Schema) => (schema.required ?? []) as string[];
  const shared = required(a).filter((name) => required(b).includes(name));
  return shared.some((name) => {
    const [one, other] = [a, b].map((schema) => (schema.properties as Schema | undefined)?.[name]);
    return one !== undefined && other !== undefined && areDisjoint(plain(one), plain(other), plain);
  });
}

function isOnly(types: readonly string[] | null, type: string): boolean {
  return types?.every((one) => one === type) ?? false;
}

/** Whether a schema has only keywords of objects. */
function isOfObjects(schema: Schema | boolean): schema is Schema {
  return typeof schema === "object" && Object.keys(schema).every((keyword) => KEYWORDS_OF.object!.includes(keyword));
}

function overlap(a: string, b: string): boolean {
  return a === b || (a === "number" && b === "integer") || (a === "integer" && b === "number");
}

function valuesOf(schema: Schema): string[] | null {
  if ("const" in schema) return [canonical(schema.const)];
  return Array.isArray(schema.enum) ? schema.enum.map(canonical) : null;
}

/** Types of the values that a schema accepts; null for any. */
function valueTypes(schema: Schema): string[] | null {
  if (schema.type !== undefined) return [schema.type].flat() as string[];
  const values = "const" in schema ? [schema.const] : Array.isArray(schema.enum) ? schema.enum : null;
  return values?.map((value) => TYPES.find((type) => isOfType(value, type))!) ?? null;
}

/** The rules that the root refers to, directly or not. */
function withoutUnused(rules: ReadonlyMap<string, Node>): Grammar {
  const root = rules.get("root")!;
  const used = new Map<string, Node>([["root", root]]);
  // A list in place of recursion, since a schema may be deeper than the call stack.
  const waiting = [root];
  for (let node = waiting.pop(); node; node = waiting.pop()) {
    waiting.push(...partsOf(node));
    if (node.kind !== "rule" || used.has(node.name)) continue;
    const target = rules.get(node.name)!;
    used.set(node.name, target);
    waiting.push(target);
  }
  return used;
}
