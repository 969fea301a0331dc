/** Allocates memory of sizes that files ask for, and frees what a session holds. */
import { UnsupportedError } from "../errors.ts";
import type { KernelMemory } from "../kernels/contract.ts";

/** Allocates zeroed bytes. UnsupportedError when this machine cannot give them. */
export function allocate(memory: KernelMemory, what: string, byteLength: number): Uint8Array {
  try {
    return memory.allocate(byteLength);
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause;
    throw new UnsupportedError(
      `${what}: the program asks for ${byteLength} bytes, which cannot be had here; export it for a shorter context`,
      { cause },
    );
  }
}

/** Resources to be freed when a session ends: by `dispose`, or when the session is garbage collected. */
export class Holdings {
  readonly #releases = new Set<() => void>();

  /** Adds a resource; the returned function frees it early. */
  add(release: () => void): () => void {
    this.#releases.add(release);
    return () => {
      if (this.#releases.delete(release)) release();
    };
  }

  releaseAll(): void {
    for (const release of this.#releases) release();
    this.#releases.clear();
  }
}

const lost = new FinalizationRegistry((holdings: Holdings) => holdings.releaseAll());

/** Frees the holdings of an owner that is garbage collected without having been disposed of. */
export function freeWith(owner: object, holdings: Holdings): void {
  lost.register(owner, holdings);
}
