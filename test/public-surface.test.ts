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

/** What a module exports. */
function symbolsOf(file: string): ts.Symbol[] {
  return checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(file)!)!);
}

function exportedBy(file: string): Exported[] {
  return symbolsOf(file).map((symbol) => {
    const isTypeOnly =
      symbol.declarations?.some((node) => ts.isExportSpecifier(node) && isTypeOnlyExport(node)) ?? false;
    const target = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
    const doc = ts.displayPartsToString(target.getDocumentationComment(checker)).trim();
    return { name: symbol.name, isValue: !isTypeOnly && (target.flags & ts.SymbolFlags.Value) !== 0, doc };
  });
}

const isTypeOnlyExport = (node: ts.ExportSpecifier) => node.isTypeOnly || node.parent.parent.isTypeOnly;

/** Openings that need the line above them, and that a hover does not have. */
const fragment = /^(Of|The same|As|Those|These|It|They|Likewise|Also|Its|Their|That|Whose|When|With|Without|See)\b/;

const isSentence = (doc: string) => /^[A-Z0-9`"<]/.test(doc) && /[.:!?)]$/.test(doc) && !fragment.test(doc);

/** A member of a class or interface that users can reach from an entry, by the types of what it exports. */
interface Member {
  readonly name: string;
  readonly doc: string;
}

/** Finds all members behind some symbols: of types, of what those extend, and of the types of members and parameters. */
class MemberSearch {
  readonly found: Member[] = [];
  readonly #seen = new Set<ts.Symbol>();

  add(symbol: ts.Symbol): void {
    const target = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
    if (this.#seen.has(target)) return;
    this.#seen.add(target);
    for (const node of target.declarations ?? [])
      if (node.getSourceFile().fileName.startsWith(`${root}src/`)) this.#declaration(target.name, node);
  }

  #declaration(owner: string, node: ts.Declaration): void {
    const isType = ts.isInterfaceDeclaration(node) || ts.isClassDeclaration(node);
    const literal = ts.isTypeAliasDeclaration(node) && ts.isTypeLiteralNode(node.type) ? node.type : null;
    for (const member of isType ? node.members : (literal?.members ?? [])) this.#member(owner, member);
    this.#types(node);
  }

  #member(owner: string, member: ts.ClassElement | ts.TypeElement): void {
    const { name } = member;
    // What overrides has the docstring of what it overrides.
    const hidden = ts.ModifierFlags.Private | ts.ModifierFlags.Override;
    if (!name || ts.isPrivateIdentifier(name) || ts.getCombinedModifierFlags(member) & hidden) return;
    const symbol = checker.getSymbolAtLocation(name);
    const doc = symbol ? ts.displayPartsToString(symbol.getDocumentationComment(checker)).trim() : "";
    this.found.push({ name: `${owner}.${name.getText()}`, doc });
  }

  /** Types that a declaration names where users see them: not in the bodies of functions. */
  #types(node: ts.Node): void {
    if (ts.isBlock(node) || (ts.isClassElement(node) && node.name && ts.isPrivateIdentifier(node.name))) return;
    const isReference = ts.isTypeReferenceNode(node) || ts.isExpressionWithTypeArguments(node);
    const symbol =
      isReference && checker.getSymbolAtLocation(ts.isTypeReferenceNode(node) ? node.typeName : node.expression);
    if (symbol) this.add(symbol);
    ts.forEachChild(node, (child) => this.#types(child));
  }
}

describe.each(entries)("%s", (_, file) => {
  const exported = exportedBy(file);

  it("has a docstring of whole sentences for each name", () => {
    const wrong = exported.filter(({ doc }) => !isSentence(doc));
    expect(wrong.map((one) => `${one.name}: ${one.doc}`)).toEqual([]);
  });

  it("has one for each member of what it exports", () => {
    const search = new MemberSearch();
    for (const symbol of symbolsOf(file)) search.add(symbol);
    expect(search.found.length).toBeGreaterThan(10);
    const wrong = search.found.filter(({ doc }) => !isSentence(doc));
    expect(wrong.map((one) => `${one.name}: ${one.doc}`)).toEqual([]);
  });
});

it("has a small root: some 70 names, 40 of them values at most", () => {
  const exported = exportedBy(entries.find(([name]) => name === ".")![1]);
  expect(exported.length).toBeLessThanOrEqual(78);
  expect(exported.filter(({ isValue }) => isValue).length).toBeLessThanOrEqual(40);
});
