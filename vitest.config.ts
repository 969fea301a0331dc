import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const source = (path: string) => fileURLToPath(new URL(`src/${path}`, import.meta.url));

export default defineConfig({
  // Examples use the package by its name.
  resolve: {
    alias: [
      { find: /^lowbit$/, replacement: source("index.ts") },
      { find: /^lowbit\/wasm$/, replacement: source("extension/wasm.ts") },
    ],
  },
  test: { include: ["{src,test,scripts}/**/*.test.{ts,js}"], testTimeout: 60_000, maxWorkers: "100%" },
});
