/** Tables of a program's tokenizer: named data beside its tokenizer.json, which begins with the SHA-256 of that file. */
import { createHash } from "node:crypto";
import { TOKENIZER_KEY } from "../language/assets.ts";
import type { Program } from "../program/program.ts";
import { decodeTokenizer, encodeTokenizer } from "../text/tokenizer/tables.ts";

const KEY = "tokenizer.tables";
const DIGEST_BYTES = 32;

const digestOf = (file: Uint8Array) => createHash("sha256").update(file).digest();

/** A program with tables of its tokenizer, where it has one that there are tables for. `file` is its tokenizer.json, parsed. */
export async function withTokenizerTables(program: Program, file: object | undefined): Promise<Program> {
  const text = await program.namedData.get(TOKENIZER_KEY)?.read();
  const tables = text && file ? encodeTokenizer(file) : null;
  if (!text || !tables) return program;
  const bytes = Buffer.concat([digestOf(text), tables]);
  const source = { byteLength: bytes.length, read: async () => bytes };
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
