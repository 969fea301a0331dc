import { defineConfig } from "vite";

// Pages with these headers may use all threads; without them the model runs on one.
const headers = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };

export default defineConfig({
  server: { headers },
  preview: { headers },
  build: { target: "es2022" },
});
