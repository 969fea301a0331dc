/**
 * What `npm run check` asks knip: which files of src/ and which of their exports no other file uses. With --production, which
 * are used by tests alone, but for those that their own file uses, too.
 */
const isProduction = process.argv.includes("--production");

/** What packages, pages, workers and bundles begin with, and what a bundle has in place of other files. */
const entries = [
  "src/{index,{ai-sdk,extension,extension/checkpoint,server,tools,web}/index,extension/wasm,cli/main}.ts!",
  "src/{web/{worker,gguf},kernels/wasm/engine/worker-program}.ts!",
  "src/bundle/{entries,stand-ins}/**/*.ts!",
  "{scripts,bench,web}/**/*.{js,ts}!",
];

export default {
  include: ["files", "exports", "types"],
  workspaces: {
    ".": {
      entry: [...entries, "{src,web}/**/*.test.ts", "test/**/*.{ts,js}"],
      project: ["src/**/*.ts!", "!src/**/*.test.ts!"],
    },
    "packages/*": {
      entry: ["src/{index,register}.ts!", "src/**/*.test.ts", "test/**/*.ts"],
      project: ["src/**/*.ts!", "!src/**/*.test.ts!"],
    },
  },
  ignoreExportsUsedInFile: isProduction,
};
