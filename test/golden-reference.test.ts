/** The goldens once more on the reference kernels alone, which are what every other kernel is compared with. */
import { vi } from "vitest";

vi.hoisted(() => {
  process.env.LOWBIT_BACKEND = "reference";
});

await import("./golden.test.ts");
