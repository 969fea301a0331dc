import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const source = (path: string) => fileURLToPath(new URL(`src/${path}`, import.meta.url));

/** Files whose tests leave nothing behind in a process: one runs them all, which saves starting and loading for each. */
const tidy = [
  "src/{*,kernels/{affine,rows-alone,select,{families,layout}/**/!(emulated),wasm/{row-text,assembler/*}},cli/{pasted-text,progress,table},web/{arriving-file,chat,embed,gguf},{ai-sdk,api,compile,executorch,formats,hub,language,model,ops,program,quantize,runtime,server,text,tools}/**/*,checkpoint/**/!(quantize-rows),sequences/**/!(file)}.test.ts",
  "test/{gguf,gguf-experts,gguf-gemma4-experts,gguf-hybrid,golden,models-2026,multi-token,quantized,random-schemas,recurrent,rounded-inputs,save-torchao}.test.ts",
];

/** Models on every kind of kernel, which takes minutes: `npm run test:models`, which `npm test` leaves out. */
const models = "test/{backends,embeddings-reference,embeddings-wasm,golden-reference,hybrid}.test.ts";

/** Files as strangers could make them, tried by the thousand: `npm run test:hostile`, which `npm test` leaves out. */
const hostile = "test/{bounded-memory,fuzz,fuzz-exports,hostile-programs,hostile-tables,sizes}.test.ts";

/** What holds for every row, number of threads and way of sharing, tried in all: `npm run test:sweeps`, which `npm test` leaves out. */
const sweeps = [
  "src/kernels/{rows-alone,wasm/row-text,families/{attention/sequences,linear/long}}.test.ts",
  "src/{sequences/operations,server/agent-prefixes,text/drafted-decoder}.test.ts",
  "test/{drafts,recurrent,sequences,threads,wrong-arguments,wrong-tool-arguments}.test.ts",
];

export default defineConfig({
  // Examples use the package by its name.
  resolve: {
    alias: [
      { find: /^lowbit$/, replacement: source("index.ts") },
      { find: /^lowbit\/aqlm$/, replacement: source("../packages/aqlm/src/index.ts") },
      { find: /^lowbit\/aqlm\/register$/, replacement: source("../packages/aqlm/src/register.ts") },
      { find: /^lowbit\/extension$/, replacement: source("extension/index.ts") },
      { find: /^lowbit\/extension\/checkpoint$/, replacement: source("extension/checkpoint/index.ts") },
      { find: /^lowbit\/server$/, replacement: source("server/index.ts") },
      { find: /^lowbit\/wasm$/, replacement: source("extension/wasm.ts") },
    ],
  },
  test: {
    testTimeout: 60_000,
    hookTimeout: 60_000,
    globalSetup: "test/support/temporary-root.ts",
    maxWorkers: "100%",
    projects: [
      {
        extends: true,
        test: {
          name: "alone",
          include: ["{src,packages,test,scripts,web}/**/*.test.{ts,js}"],
          exclude: [...tidy, ...sweeps, hostile, models, "**/node_modules/**"],
        },
      },
      { extends: true, test: { name: "together", include: tidy, exclude: sweeps, isolate: false } },
      { extends: true, test: { name: "sweeps", include: sweeps } },
      { extends: true, test: { name: "hostile", include: [hostile] } },
      { extends: true, test: { name: "models", include: [models] } },
    ],
  },
});
