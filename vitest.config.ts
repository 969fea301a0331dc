import { defineConfig } from "vitest/config";

export default defineConfig({
  test: { include: ["{src,test,scripts}/**/*.test.{ts,js}"], testTimeout: 60_000 },
});
