/** Strings and integers as Python has them: pickles by its `pickle.dumps`, strings by `bytes.decode("utf-8", "surrogatepass")`. */
import { expect, it } from "vitest";
import { InvalidFileError } from "../../errors.ts";
import { type PickleHandler, readPickle } from "./pickle.ts";

const none: PickleHandler = { call: () => null, persistent: () => null };
const read = (bytes: Uint8Array) => readPickle("x.pt", bytes, none);

/** `{"\ufeffname": 1, "\ud800": 2, "big": 2**70, "low": -2**64, "long": 2**2100 - 1, "exact": -2**40}`. */
const long = `iwcBAAD${"/".repeat(349)}`;
const pickles = {
  2: `gAJ9cQAoWAcAAADvu79uYW1lcQFLAVgDAAAA7aCAcQJLAlgDAAAAYmlncQOKCQAAAAAAAAAAQFgDAAAAbG93cQSKCQAAAAAAAAAA/1gEAAAAbG9uZ3EF${long}D1gFAAAAZXhhY3RxBooGAAAAAAD/dS4=`,
  4: `gASVXgEAAAAAAAB9lCiMB++7v25hbWWUSwGMA+2ggJRLAowDYmlnlIoJAAAAAAAAAABAjANsb3eUigkAAAAAAAAAAP+MBGxvbmeU${long}D4wFZXhhY3SUigYAAAAAAP91Lg==`,
};

it.each(Object.entries(pickles))("protocol %s: names with U+FEFF and surrogates, integers of any size", (_, text) => {
  expect(read(Buffer.from(text, "base64"))).toEqual(
    new Map<string, number | bigint>([
      ["\uFEFFname", 1],
      ["\uD800", 2],
      ["big", 2n ** 70n],
      ["low", -(2n ** 64n)],
      ["long", 2n ** 2100n - 1n],
      ["exact", -(2 ** 40)],
    ]),
  );
});

it.each(["ff", "61ed", "eda0", "edc080", "efbbbfff"])("a string of the bytes %s is refused, as in Python", (hex) => {
  const text = Buffer.from(hex, "hex");
  const pickle = Buffer.concat([Uint8Array.of(0x80, 4, 0x8c, text.length), text, Buffer.from(".")]);
  expect(() => read(pickle)).toThrow(InvalidFileError);
  expect(() => read(pickle)).toThrow("x.pt: pickle has a string that is not UTF-8");
});
