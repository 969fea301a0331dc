/** A sink that keeps what is written to it. */
import type { ByteSink } from "../../src/byte-source.ts";

export class MemorySink implements ByteSink {
  #bytes = Buffer.alloc(0);

  get position(): number {
    return this.#bytes.length;
  }

  async write(bytes: Uint8Array): Promise<void> {
    this.#bytes = Buffer.concat([this.#bytes, bytes]);
  }

  async rewrite(position: number, bytes: Uint8Array): Promise<void> {
    this.#bytes.set(bytes, position);
  }

  /** A copy of what was written. */
  bytes(): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.#bytes);
  }
}
