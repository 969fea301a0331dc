/** Node's built-in modules without an import, which would fail in web pages and their bundlers. */

/** The module `name` ("node:fs"); undefined outside of Node. */
export function nodeBuiltin<M>(name: string): M | undefined {
  const process = globalThis.process as { getBuiltinModule?(name: string): M } | undefined;
  return process?.getBuiltinModule?.(name);
}
