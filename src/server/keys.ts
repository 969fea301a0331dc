/** API keys, compared in constant time. */
import { createHash, timingSafeEqual } from "node:crypto";
import { InvalidArgumentError } from "../errors.ts";

/** A key must fit into a header: visible ASCII. */
const KEY = /^[\x21-\x7e]{1,512}$/;

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/** An API key, and whether its holder may load, unload, pull, copy and delete models. */
export interface ApiKey {
  /** The key itself: 1 to 512 visible ASCII characters. */
  readonly key: string;
  /** Whether the holder may load, unload, pull, copy and delete models. */
  readonly manages: boolean;
}

/** The holder of a request's key. */
export interface Owner {
  /** A name derived from the key; "" on a server without keys. */
  readonly name: string;
  /** Whether the key may manage models; null on a server without keys, which then decides by the client's address. */
  readonly manages: boolean | null;
}

/** The keys of a server; without any, everyone may send requests. */
export class ApiKeys {
  readonly #known: readonly { readonly digest: Buffer; readonly manages: boolean }[];

  /** InvalidArgumentError, which does not show the key, for a key that no header can carry. */
  constructor(keys: readonly (string | ApiKey)[]) {
    const given = keys.map((key) => (typeof key === "string" ? { key, manages: false } : key));
    given.forEach(({ key }, i) => {
      if (!KEY.test(key))
        throw new InvalidArgumentError(
          `API key ${i + 1}: expected 1 to 512 visible ASCII characters but found ${key.length} with others among them`,
        );
    });
    this.#known = given.map(({ key, manages }) => ({ digest: digest(key), manages }));
  }

  get isOpen(): boolean {
    return this.#known.length === 0;
  }

  /** The holder of the key in `Authorization: Bearer` or `x-api-key`; null for an unknown key. */
  ownerOf(headers: { readonly authorization: string | undefined; readonly apiKey: string | undefined }): Owner | null {
    if (this.isOpen) return { name: "", manages: null };
    const given = digest(headers.apiKey ?? /^Bearer +(\S+)$/i.exec(headers.authorization ?? "")?.[1] ?? "");
    let owner: Owner | null = null;
    for (const { digest, manages } of this.#known)
      if (timingSafeEqual(digest, given)) owner = { name: given.toString("base64url"), manages };
    return owner;
  }
}

/** Marks a key that may manage models, at the end of its line. */
const MANAGES = /\s+manage$/;

/**
 * Parses a file of keys: one a line, with `manage` behind those that may manage models; empty lines and lines that begin
 * with # are skipped.
 */
export function parseKeys(text: string): ApiKey[] {
  const lines = text.split(/\r?\n/).map((line) => line.trim());
  return lines
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line) => ({ key: line.replace(MANAGES, ""), manages: MANAGES.test(line) }));
}
