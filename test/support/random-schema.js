/** JSON schemas at random, of the keywords that can be enforced, and finite, so that a small model ends its answers. */

/** Numbers from 0 to 1 that a seed begins. @param {number} seed @returns {() => number} */
export function randomNumbers(seed) {
  let state = (seed * 2654435761) >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const PATTERNS = [
  "^[a-z]{1,8}$",
  "^\\d{3}-\\d{2}$",
  "^(red|green|blue)( dark)?$",
  "^[A-Z][a-z]{2,6} [0-9]+$",
  "^é[^x]$",
];
const FORMATS = ["date", "time", "date-time", "uuid", "email", "ipv4"];
const NAMES = ["name", "id", "a b", "x", "kind", "ünï", 'quo"te', "items", "n"];
const VALUES = ["yes", "no", 1, 2.5, null, true, "ß\n", [1, "a"], { a: null }];

/** A schema. @param {() => number} random @param {number} [depth] @returns {Record<string, unknown>} */
export function randomSchema(random, depth = 3) {
  /** @template T @param {readonly T[]} list @returns {T} */
  const pick = (list) => list[Math.floor(random() * list.length)] ?? list[0];
  const whole = (/** @type {number} */ low, /** @type {number} */ high) =>
    low + Math.floor(random() * (high - low + 1));
  const inner = () => randomSchema(random, depth - 1);
  const makers = [string, string, number, integer, integer, values, () => ({ type: pick(["boolean", "null"]) })];
  if (depth > 0) makers.push(object, object, object, array, array, union, both, reference);
  return pick(makers)();

  function string() {
    const kind = random();
    if (kind < 0.25) return { type: "string", pattern: pick(PATTERNS) };
    if (kind < 0.5) return { type: "string", format: pick(FORMATS) };
    const minLength = whole(0, 4);
    return { type: "string", minLength, maxLength: minLength + whole(0, 20) };
  }

  function number() {
    const places = 10 ** whole(0, 3);
    const low = whole(-2000, 2000) / places;
    const high = Number((low + whole(1, 3000) / places).toFixed(3));
    return {
      type: "number",
      [pick(["minimum", "exclusiveMinimum"])]: low,
      [pick(["maximum", "exclusiveMaximum"])]: high,
    };
  }

  function integer() {
    if (random() < 0.2) return { type: "integer", multipleOf: whole(2, 12) };
    const low = whole(-500, 500);
    return random() < 0.2 ? { type: "integer" } : { type: "integer", minimum: low, maximum: low + whole(0, 5000) };
  }

  function values() {
    return random() < 0.3
      ? { const: pick(VALUES) }
      : { enum: [...new Set([pick(VALUES), pick(VALUES), pick(VALUES)])] };
  }

  function object() {
    const names = [...new Set(Array.from({ length: whole(1, 4) }, () => pick(NAMES)))];
    const properties = Object.fromEntries(names.map((name) => [name, inner()]));
    const required = names.filter(() => random() < 0.7);
    return { type: "object", properties, required, ...(random() < 0.7 && { additionalProperties: false }) };
  }

  function array() {
    if (random() < 0.25) return { type: "array", prefixItems: [inner(), inner()], items: false, minItems: whole(0, 2) };
    const minItems = whole(0, 2);
    return { type: "array", items: inner(), minItems, maxItems: minItems + whole(0, 2) };
  }

  function union() {
    if (random() < 0.5) return { anyOf: [inner(), inner()] };
    const branch = (/** @type {string} */ kind) => ({
      ...{ type: "object", properties: { kind: { const: kind }, value: inner() }, required: ["kind", "value"] },
    });
    return { oneOf: [branch("a"), branch("b")] };
  }

  function both() {
    return {
      allOf: [
        { type: "object", properties: { n: { type: "integer", minimum: 3 } }, required: ["n"] },
        { type: "object", properties: { n: { maximum: 9 }, x: inner() }, required: ["x"] },
      ],
    };
  }

  function reference() {
    return { type: "object", properties: { next: { anyOf: [{ $ref: "#" }, { type: "null" }] } }, required: ["next"] };
  }
}

/** A schema of which `#` is the whole. @param {number} seed */
export function schemaOf(seed) {
  const schema = randomSchema(randomNumbers(seed));
  // What refers to the whole must be able to end: an object that names itself only beside null.
  return JSON.stringify(schema).includes("$ref") && schema.type !== "object"
    ? { type: "object", properties: { v: { type: "boolean" } }, required: ["v"] }
    : schema;
}
