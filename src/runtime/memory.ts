/** Memory that a program asks for, whose sizes come from files; and what a session holds of it. */
import { UnsupportedError } from "../errors.ts";
import type { KernelMemory } from "../kernels/contract.ts";

/** Zeroed bytes; UnsupportedError when this machine cannot give so many. */
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

/** Things to be freed when a session ends: by `dispose`, or when nothing refers to the session any more. */
export class Holdings {
  readonly #releases = new Set<() => void>();

  /** Gives what takes the thing out of the holdings and frees it. */
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

/** Frees the holdings of an owner that is forgotten without having been disposed of. */
export function freeWith(owner: object, holdings: Holdings): void {
  lost.register(owner, holdings);
}
