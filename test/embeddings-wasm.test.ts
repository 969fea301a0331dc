/** Vectors and scores of texts once more in WebAssembly. */
import { vi } from "vitest";

vi.hoisted(() => {
  process.env.LOWBIT_BACKEND = "wasm";
});

await import("./embeddings.test.ts");
