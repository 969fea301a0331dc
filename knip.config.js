/**
 * What `npm run check` asks knip: which files of src/ and which of their exports no other file uses. With --production, which
 * are used by tests alone, but for those that their own file uses, too.
 */
const isProduction = process.argv.includes("--production");

/** What packages, pages, workers and bundles begin with, and what a bundle has in place of other files. */
const entries = [
  "src/{index,{ai-sdk,extension,extension/checkpoint,server,tools,web}/index,extension/wasm,cli/main}.ts!",
  "src/{web/{worker,lazy-modules,gguf},kernels/wasm/engine/worker-program}.ts!",
  "packages/aqlm/src/{index,register}.ts!",
  "src/bundle/{entries,stand-ins}/**/*.ts!",
  "{scripts,bench,web}/**/*.{js,ts}!",
];

export default {
  include: ["files", "exports", "types"],
  entry: [...entries, "{src,packages,web}/**/*.test.ts", "test/**/*.{ts,js}"],
  project: ["{src,packages}/**/*.ts!", "!{src,packages}/**/*.test.ts!", "!packages/*/test/**!"],
  ignoreExportsUsedInFile: isProduction,
};
