/**
 * What tests make once for all rows: cases and what is expected of them. With LOWBIT_CASES, a folder, later processes find
 * them there: emulated ones would take twenty times as long to make them.
 */
import { nodeBuiltin } from "../../src/node-builtin.ts";

const folder = globalThis.process?.env.LOWBIT_CASES;
const made = new Map<string, unknown>();

/** The value of that name, made when it is first asked for. Names tell everything that it depends on. */
export function madeOnce<V>(name: string, make: () => V): V {
  const known = made.get(name) as V | undefined;
  if (known !== undefined) return known;
  const value = folder ? keptIn(folder, name, make) : make();
  made.set(name, value);
  return value;
}

function keptIn<V>(folder: string, name: string, make: () => V): V {
  const { existsSync, readFileSync, renameSync, writeFileSync } = nodeBuiltin<typeof import("node:fs")>("node:fs")!;
  const { deserialize, serialize } = nodeBuiltin<typeof import("node:v8")>("node:v8")!;
  const file = `${folder}/${encodeURIComponent(name)}`;
  if (existsSync(file)) return withOwnMemory(deserialize(readFileSync(file))) as V;
  const value = make();
  const partial = `${file}.${crypto.randomUUID()}`;
  writeFileSync(partial, serialize(value));
  renameSync(partial, file);
  return value;
}

/** A copy whose arrays lie in memory of their own, as they were made: those of bytes are read as parts of the file's. */
function withOwnMemory(value: unknown): unknown {
  if (ArrayBuffer.isView(value)) return (value as Uint8Array).slice();
  if (Array.isArray(value)) return value.map(withOwnMemory);
  if (value === null || typeof value !== "object" || Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, withOwnMemory(item)]));
}
