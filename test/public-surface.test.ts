/** What the package exports: how much, and that a reader learns from a hover what each name is. */
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { describe, expect, it } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));
const { exports } = JSON.parse(await readFile(`${root}package.json`, "utf8")) as {
  exports: Record<string, string | { readonly types: string }>;
};

/** Sources of the package's entries, by their names. */
const entries = Object.entries(exports).flatMap(([name, entry]) =>
  typeof entry === "string"
    ? []
    : [[name, root + entry.types.replace("./dist/", "src/").replace(".d.ts", ".ts")] as const],
);

const { config } = ts.readConfigFile(`${root}tsconfig.json`, ts.sys.readFile);
const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
const program = ts.createProgram(
  entries.map(([, file]) => file),
  options,
);
const checker = program.getTypeChecker();

interface Exported {
  readonly name: string;
  readonly isValue: boolean;
  readonly doc: string;
}

function exportedBy(file: string): Exported[] {
  const module = checker.getSymbolAtLocation(program.getSourceFile(file)!)!;
  return checker.getExportsOfModule(module).map((symbol) => {
    const isTypeOnly =
      symbol.declarations?.some((node) => ts.isExportSpecifier(node) && isTypeOnlyExport(node)) ?? false;
    const target = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
    const doc = ts.displayPartsToString(target.getDocumentationComment(checker)).trim();
    return { name: symbol.name, isValue: !isTypeOnly && (target.flags & ts.SymbolFlags.Value) !== 0, doc };
  });
}

const isTypeOnlyExport = (node: ts.ExportSpecifier) => node.isTypeOnly || node.parent.parent.isTypeOnly;

/** Openings that need the line above them, and that a hover does not have. */
const fragment = /^(Of|The same|As|Those|These|It|They|Likewise|Also|Its|Their)\b/;

describe.each(entries)("%s", (_, file) => {
  const exported = exportedBy(file);

  it("has a docstring of whole sentences for each name", () => {
    const wrong = exported.filter(
      ({ doc }) => !/^[A-Z0-9`"[]/.test(doc) || !/[.:!?)]$/.test(doc) || fragment.test(doc),
    );
    expect(wrong.map((one) => `${one.name}: ${one.doc}`)).toEqual([]);
  });
});

it("has a small root: some 60 names, 40 of them values at most", () => {
  const exported = exportedBy(entries.find(([name]) => name === ".")![1]);
  expect(exported.length).toBeLessThanOrEqual(66);
  expect(exported.filter(({ isValue }) => isValue).length).toBeLessThanOrEqual(40);
});
