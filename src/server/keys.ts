/** Who may ask: keys, compared in a time that tells nothing of them. */
import { createHash, timingSafeEqual } from "node:crypto";
import { InvalidArgumentError } from "../errors.ts";

/** A key in a header is visible ASCII. */
const KEY = /^[\x21-\x7e]{1,512}$/;

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/** A key, and whether who has it may load, unload, pull, copy and delete models. */
export interface ApiKey {
  /** What requests carry: 1 to 512 visible ASCII characters. */
  readonly key: string;
  /** Whether it is a key for that. */
  readonly manages: boolean;
}

/** Who asks. */
export interface Owner {
  /** A name of the key; "" where everyone may ask. */
  readonly name: string;
  /** Whether the key says that it may change which models there are; null without keys, where the server decides. */
  readonly manages: boolean | null;
}

/** The keys of a server; without any, everyone may ask. */
export class ApiKeys {
  readonly #known: readonly { readonly digest: Buffer; readonly manages: boolean }[];

  /** InvalidArgumentError, which does not show it, for a key that no header can carry. */
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

  /**
   * Who asks, by the key that headers carry, as `Authorization: Bearer` or as `x-api-key`; null for none of the keys.
   */
  ownerOf(headers: { readonly authorization: string | undefined; readonly apiKey: string | undefined }): Owner | null {
    if (this.isOpen) return { name: "", manages: null };
    const given = digest(headers.apiKey ?? /^Bearer +(\S+)$/i.exec(headers.authorization ?? "")?.[1] ?? "");
    let owner: Owner | null = null;
    for (const { digest, manages } of this.#known)
      if (timingSafeEqual(digest, given)) owner = { name: given.toString("base64url"), manages };
    return owner;
  }
}

/** What makes a key one that manages models, behind it on its line. */
const MANAGES = /\s+manage$/;

/** Keys of a text: one a line, those that may manage models with `manage` behind; empty lines and lines that begin with # are none. */
export function parseKeys(text: string): ApiKey[] {
  const lines = text.split(/\r?\n/).map((line) => line.trim());
  return lines
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line) => ({ key: line.replace(MANAGES, ""), manages: MANAGES.test(line) }));
}
