/** Vectors and scores of texts once more on the reference kernels alone. */
import { vi } from "vitest";

vi.hoisted(() => {
  process.env.LOWBIT_BACKEND = "reference";
});

await import("./embeddings.test.ts");
