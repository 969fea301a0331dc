/** Real clients against a running server: `npm run test:serve`. */
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/serve/*.serve.js"],
    globalSetup: ["test/support/temporary-root.ts", "test/serve/server.js"],
    testTimeout: 120_000,
    hookTimeout: 120_000,
    // Clients wait for one server and for each other's turns.
    maxWorkers: 2,
  },
});
