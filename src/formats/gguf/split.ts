/** Models split into several GGUF files, `name-00001-of-00003.gguf` and so on: the first has the metadata, each has tensors. */
import { InvalidFileError } from "../../errors.ts";
import { quote } from "../json.ts";
import type { GgufTensors } from "./tensors.ts";

const PART = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/;

/** Names of all files of the model that a file name belongs to, in order; null for an unsplit model. */
export function partNames(name: string): readonly string[] | null {
  const [, stem, , last] = PART.exec(name) ?? [];
  if (stem === undefined) return null;
  return Array.from({ length: Number(last) }, (_, i) => `${stem}-${String(i + 1).padStart(5, "0")}-of-${last}.gguf`);
}

/** The only model among a folder's .gguf files, by its first file; null when there are none or several. */
export function onlyModel(names: Iterable<string>): string | null {
  const models = [...names]
    .filter((name) => name.endsWith(".gguf"))
    .filter((name) => Number(PART.exec(name)?.[2] ?? 1) === 1);
  return models.length === 1 ? models[0]! : null;
}

/** Joins the tensors of several files. InvalidFileError for a duplicate tensor, or when their number is not `count`. */
export function joinTensors(file: string, parts: readonly GgufTensors[], count: number | null): GgufTensors {
  if (parts.length === 1) return parts[0]!;
  const owners = new Map<string, GgufTensors>();
  for (const part of parts)
    for (const name of part.names) {
      if (owners.has(name)) throw new InvalidFileError(file, `two of its files have tensor ${quote(name)}`);
      owners.set(name, part);
    }
  if (count !== null && owners.size !== count)
    throw new InvalidFileError(file, `its files have ${owners.size} tensors but split.tensors.count is ${count}`);
  const owner = (name: string): GgufTensors => {
    const found = owners.get(name);
    if (!found) throw new InvalidFileError(file, `has no tensor ${quote(name)} among its ${owners.size}`);
    return found;
  };
  return {
    names: [...owners.keys()],
    has: (name) => owners.has(name),
    info: (name) => owner(name).info(name),
    storedType: (name) => owner(name).storedType(name),
    read: async (name) => owner(name).read(name),
    readRows: async (name, first, count) => owner(name).readRows(name, first, count),
    lowBit: (name) => owner(name).lowBit(name),
    async close() {
      for (const part of parts) await part.close();
    },
  };
}
