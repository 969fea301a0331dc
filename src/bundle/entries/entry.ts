/** What a bundle exports: a program loaded with the operators and kernels that it calls, and its decoder. */
import { memorySource } from "../../byte-source.ts";
import { nodeBuiltin } from "../../node-builtin.ts";
import { readProgram } from "../../program/read.ts";
import { LoadedProgram, type LoadOptions } from "../../runtime/program.ts";
import { blobSource } from "../../web/blob-source.ts";

export { createDecoder } from "../../language/decoders.ts";
export type { ProgramDecoder } from "../../language/program-decoder.ts";

/** A .pte file: its bytes, a blob, or its path (in Node) or URL. */
export type ProgramSource = Uint8Array | Blob | string | URL;

async function open(source: ProgramSource) {
  if (source instanceof Uint8Array) return memorySource("program", source);
  return blobSource(String(source), source instanceof Blob ? source : await fetchBlob(source));
}

async function fetchBlob(address: string | URL): Promise<Blob> {
  const isFile = address instanceof URL ? address.protocol === "file:" : !/^(https?|blob|data):/.test(address);
  const files = isFile ? nodeBuiltin<typeof import("node:fs")>("node:fs") : undefined;
  if (files) return files.openAsBlob(address);
  const response = await fetch(address);
  if (!response.ok) throw new TypeError(`${address}: the server answered ${response.status} ${response.statusText}`);
  return response.blob();
}

/** Reads a program's weights and makes it ready; `createDecoder(program)` decodes with it. */
export async function load(source: ProgramSource, options: LoadOptions = {}): Promise<LoadedProgram> {
  const file = await open(source);
  try {
    return await LoadedProgram.load(await readProgram(file), options);
  } finally {
    await file.close();
  }
}
