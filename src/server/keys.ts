/** Who may ask: keys, compared in a time that tells nothing of them. */
import { createHash, timingSafeEqual } from "node:crypto";
import { InvalidArgumentError } from "../errors.ts";

/** A key in a header is visible ASCII. */
const KEY = /^[\x21-\x7e]{1,512}$/;

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/** The keys of a server; without any, everyone may ask. */
export class ApiKeys {
  readonly #digests: readonly Buffer[];

  /** InvalidArgumentError, which does not show it, for a key that no header can carry. */
  constructor(keys: readonly string[]) {
    keys.forEach((key, i) => {
      if (!KEY.test(key))
        throw new InvalidArgumentError(
          `API key ${i + 1}: expected 1 to 512 visible ASCII characters but found ${key.length} with others among them`,
        );
    });
    this.#digests = keys.map(digest);
  }

  get isOpen(): boolean {
    return this.#digests.length === 0;
  }

  /**
   * Who asks: a name of the key that headers carry, as `Authorization: Bearer` or as `x-api-key`; "" where everyone may ask,
   * null for none of the keys.
   */
  ownerOf(headers: { readonly authorization: string | undefined; readonly apiKey: string | undefined }): string | null {
    if (this.isOpen) return "";
    const given = digest(headers.apiKey ?? /^Bearer +(\S+)$/i.exec(headers.authorization ?? "")?.[1] ?? "");
    let isKnown = false;
    for (const known of this.#digests) isKnown = timingSafeEqual(known, given) || isKnown;
    return isKnown ? given.toString("base64url") : null;
  }
}

/** Keys of a text: one a line; empty lines and lines that begin with # are none. */
export function parseKeys(text: string): string[] {
  const lines = text.split(/\r?\n/).map((line) => line.trim());
  return lines.filter((line) => line !== "" && !line.startsWith("#"));
}
