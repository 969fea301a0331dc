/** Tables of a program's tokenizer: named data beside its tokenizer.json, which begins with the SHA-256 of that file. */
import { createHash } from "node:crypto";
import { LowbitError } from "../errors.ts";
import type { JsonFile } from "../formats/json.ts";
import { TOKENIZER_KEY } from "../language/assets.ts";
import type { Program } from "../program/program.ts";
import { fileBytes } from "../program/write.ts";
import { decodeTokenizer, encodeTokenizer } from "../text/tokenizer/tables.ts";

const KEY = "tokenizer.tables";
const DIGEST_BYTES = 32;
/** Tables are no larger than this, or than this share of a program: Gemma's would be a tenth of its 270M model. */
const BYTES_MAX = 2 ** 18;
const SHARE_MAX = 1 / 32;

const digestOf = (file: Uint8Array) => createHash("sha256").update(file).digest();

const made = new WeakMap<JsonFile, Uint8Array | null>();

/** Tables with the digest of their file; null where there are none. */
function tablesOf(file: JsonFile): Uint8Array | null {
  const known = made.get(file);
  if (known !== undefined) return known;
  let tables: Uint8Array | null = null;
  try {
    const found = encodeTokenizer(file.value);
    tables = found && Buffer.concat([digestOf(new TextEncoder().encode(file.text)), found]);
  } catch (error) {
    // A tokenizer.json that is wrong goes into programs as it is; who needs it says what is wrong.
    if (!(error instanceof LowbitError)) throw error;
  }
  made.set(file, tables);
  return tables;
}

/** A program with tables of its tokenizer, where it has one that there are tables for and they are a small part of it. */
export function withTokenizerTables(program: Program, file: JsonFile | null): Program {
  const tables = file && tablesOf(file);
  if (!tables || (tables.length > BYTES_MAX && tables.length > SHARE_MAX * fileBytes(program))) return program;
  const source = { byteLength: tables.length, read: async () => tables };
  return { ...program, namedData: new Map([...program.namedData, [KEY, source]]) };
}

/** A program's tokenizer as `Tokenizer` takes it, of tables; null where it has none that are of its tokenizer.json. */
export async function storedTokenizer({ namedData }: Program, name: string): Promise<unknown> {
  const [text, bytes] = [namedData.get(TOKENIZER_KEY), namedData.get(KEY)];
  if (!text || !bytes) return null;
  const tables = await bytes.read();
  if (!digestOf(await text.read()).equals(tables.subarray(0, DIGEST_BYTES))) return null;
  return decodeTokenizer(tables.subarray(DIGEST_BYTES), `${name}, ${KEY}`);
}
