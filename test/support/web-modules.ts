/** What the worker of pages loads late, as sources. */
import type { ModuleAddresses } from "../../src/web/protocol.ts";

const source = (path: string) => new URL(`../../src/${path}`, import.meta.url).pathname;

export const webModules: ModuleAddresses = {
  answers: source("text/answer/index.ts"),
  constraints: source("text/constraints/index.ts"),
  gguf: source("web/gguf.ts"),
};
