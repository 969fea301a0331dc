/** Coding agents against a server: `npm run test:agents`. */
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/agents/*.agents.js"],
    globalSetup: ["test/support/temporary-root.ts"],
    testTimeout: 300_000,
    hookTimeout: 120_000,
  },
});
