/** Numbers within bounds and multiples, as exact arithmetic says of every number near. */
import fc from "fast-check";
import { expect, it } from "vitest";
import { compileConstraint } from "./compile.ts";
import { GrammarFollower } from "./follower.ts";

function taker(schema: object): (text: string) => boolean {
  const grammar = compileConstraint({ kind: "jsonSchema", schema });
  return (text) => new GrammarFollower(grammar).after([...new TextEncoder().encode(text)])?.canEnd ?? false;
}

/** A decimal text times 10^12. */
function exact(text: string): bigint {
  const [, mantissa, exponent = "0"] = /^([^eE]*)(?:[eE](.*))?$/.exec(text)!;
  const [whole, fraction = ""] = mantissa!.split(".");
  const shift = 12 + Number(exponent) - fraction.length;
  const digits = BigInt(`${whole}${fraction}`.replace(/^-/, "")) * (text.startsWith("-") ? -1n : 1n);
  return shift >= 0 ? digits * 10n ** BigInt(shift) : digits / 10n ** BigInt(-shift);
}

const bound = fc.tuple(fc.integer({ min: -3000, max: 3000 }), fc.constantFrom(1, 10, 1000)).map(([n, by]) => n / by);
const text = fc
  .tuple(
    fc.constantFrom("", "-"),
    fc.integer({ min: 0, max: 9999 }),
    fc.constantFrom("", ".0", ".5", ".25", ".125", ".999", ".001"),
  )
  .map((parts) => parts.join(""));
const scientific = fc
  .tuple(
    fc.constantFrom("", "-"),
    fc.integer({ min: 1, max: 9 }),
    fc.constantFrom("", ".5", ".25"),
    fc.integer({ min: -5, max: 4 }),
  )
  .map(([sign, whole, fraction, power]) => `${sign}${whole}${fraction}e${power}`);

it("numbers are those between their bounds that a divisor divides", () => {
  fc.assert(
    fc.property(
      fc.tuple(fc.option(bound), fc.option(bound), fc.boolean(), fc.option(fc.constantFrom(3, 7, 0.25, 0.01, 1.5))),
      fc.boolean(),
      fc.array(fc.oneof(text, scientific), { minLength: 20, maxLength: 20 }),
      ([low, high, isOpen, step], isInteger, all) => {
        const schema = {
          type: isInteger ? "integer" : "number",
          ...(low !== null && { [isOpen ? "exclusiveMinimum" : "minimum"]: low }),
          ...(high !== null && { [isOpen ? "exclusiveMaximum" : "maximum"]: high }),
          ...(step !== null && { multipleOf: step }),
        };
        const isOf = (one: string) => {
          const value = exact(one);
          const [least, most] = [low ?? -1e5, high ?? 1e5].map((own) => exact(own.toFixed(4)));
          const isWithin = isOpen ? value > least! && value < most! : value >= least! && value <= most!;
          const isWritten = !isInteger || /^(0|-?[1-9]\d*)$/.test(one);
          return isWithin && isWritten && (step === null || value % exact(String(step)) === 0n);
        };
        let takes: (text: string) => boolean;
        try {
          takes = taker(schema);
        } catch {
          // Nothing is of the schema.
          takes = () => false;
        }
        for (const one of all) expect(takes(one), `${one} of ${JSON.stringify(schema)}`).toBe(isOf(one));
      },
    ),
    { numRuns: 60, seed: 5 },
  );
});

it.each<[object, string[], string[]]>([
  [
    { type: "integer", multipleOf: 7 },
    ["7602250257", "-7", "0", "9007199254740981"],
    ["7602250258", "7.0", "76022502570000000000000000000000"],
  ],
  [{ type: "integer", multipleOf: 123456789, minimum: 1 }, ["123456789", "246913578"], ["0", "123456788"]],
  [
    { type: "integer", multipleOf: 7, maximum: 1e40 },
    ["76022502570000000000000000000000"],
    ["76022502570000000000000000000001"],
  ],
  [{ type: "number", multipleOf: 0.01 }, ["19.99", "0.3", "-1e2", "1.5e-1"], ["19.995", "1e-3"]],
  [
    { type: "integer", minimum: 1e20, maximum: 1e21 },
    ["100000000000000000000"],
    ["99999999999999999999", "1000000000000000000001"],
  ],
  [{ type: "integer", maximum: 9007199254740991 }, ["9007199254740991"], ["9007199254740992"]],
  [
    { type: "number", minimum: 0, maximum: 1 },
    ["5e-324", "1e-05", "-0.0", "0.30000000000000004"],
    ["1.0000000000000002", "-1e-9"],
  ],
  [{ type: "number", exclusiveMaximum: 1 }, ["0.9999999999999999"], ["1", "0.99999999999999999999"]],
  [{ type: "number" }, ["1.7976931348623157e+308", "-0", "12E3", "0.5e-3"], ["1.8e308", "1e999", "01", ".5", "1."]],
])("%j has %j and not %j", (schema, valid, invalid) => {
  const takes = taker(schema);
  expect(valid.filter((one) => !takes(one))).toEqual([]);
  expect(invalid.filter(takes)).toEqual([]);
});
