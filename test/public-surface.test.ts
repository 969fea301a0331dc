/** What the package exports: how much, and that a reader learns from a hover what each name is. */
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import * as ts from "typescript/unstable/ast";
import { API, ModifierFlags, type NodeHandle, SymbolFlags, type Symbol as TypeSymbol } from "typescript/unstable/sync";
import { afterAll, describe, expect, it } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));
const { exports } = JSON.parse(await readFile(`${root}package.json`, "utf8")) as {
  exports: Record<string, string | { readonly types?: string }>;
};

/** Sources of the package's entries, by their names. */
const entries = Object.entries(exports).flatMap(([name, entry]) =>
  typeof entry === "string" || !entry.types
    ? []
    : [
        [
          name,
          root +
            entry.types
              .replace("./dist/aqlm/", "packages/aqlm/src/")
              .replace("./dist/", "src/")
              .replace(".d.ts", ".ts"),
        ] as const,
      ],
);

const api = new API({ cwd: root });
afterAll(() => api.close());
const { program, checker } = api
  .updateSnapshot({ openProject: `${root}tsconfig.json` })
  .getProject(`${root}tsconfig.json`)!;

interface Exported {
  readonly name: string;
  readonly isValue: boolean;
  readonly doc: string;
}

/** What a module exports. */
function symbolsOf(file: string): readonly TypeSymbol[] {
  return checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(file)!)!);
}

/** Where a symbol is declared in the sources of the package. */
function declarationsOf({ declarations }: TypeSymbol): ts.Node[] {
  return declarations
    .filter(({ path }) => path.startsWith(`${root}src/`) || path.startsWith(`${root}packages/`))
    .map((handle: NodeHandle) => handle.resolve()!);
}

const targetOf = (symbol: TypeSymbol) => (symbol.flags & SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol);

function exportedBy(file: string): Exported[] {
  return symbolsOf(file).map((symbol) => {
    const isTypeOnly = declarationsOf(symbol).some((node) => ts.isExportSpecifier(node) && isTypeOnlyExport(node));
    const target = targetOf(symbol);
    const doc = target.getDocumentationComment(checker).trim();
    return { name: symbol.name, isValue: !isTypeOnly && (target.flags & SymbolFlags.Value) !== 0, doc };
  });
}

const isTypeOnlyExport = (node: ts.ExportSpecifier) =>
  node.isTypeOnly || (node.parent.parent as ts.ExportDeclaration).isTypeOnly;

/** Openings that need the line above them, and that a hover does not have. */
const fragment = /^(Of|The same|As|Those|These|It|They|Likewise|Also|Its|Their|That|Whose|When|With|Without|See)\b/;

const isSentence = (doc: string) => /^[A-Z0-9`"<]/.test(doc) && /[.:!?)]$/.test(doc) && !fragment.test(doc);

/** A member of a class or interface that users can reach from an entry, by the types of what it exports. */
interface Member {
  readonly name: string;
  readonly doc: string;
}

/** Members of classes and types as the syntax tree has them; call signatures have no name. */
type MemberNode = ts.Node & { readonly name?: ts.PropertyName; readonly modifierFlags?: ModifierFlags };

const isPrivateMember = (node: ts.Node) => {
  const { name } = node as MemberNode;
  return name !== undefined && ts.isPrivateIdentifier(name);
};

/** Finds all members behind some symbols: of types, of what those extend, and of the types of members and parameters. */
class MemberSearch {
  readonly found: Member[] = [];
  readonly #seen = new Set<TypeSymbol>();

  add(symbol: TypeSymbol): void {
    const target = targetOf(symbol);
    if (this.#seen.has(target)) return;
    this.#seen.add(target);
    for (const node of declarationsOf(target)) this.#declaration(target.name, node);
  }

  #declaration(owner: string, node: ts.Node): void {
    const isType = ts.isInterfaceDeclaration(node) || ts.isClassDeclaration(node);
    const literal = ts.isTypeAliasDeclaration(node) && ts.isTypeLiteralNode(node.type) ? node.type : null;
    for (const member of isType ? node.members : (literal?.members ?? [])) this.#member(owner, member as MemberNode);
    this.#types(node);
  }

  #member(owner: string, { name, modifierFlags = ModifierFlags.None }: MemberNode): void {
    // What overrides has the docstring of what it overrides.
    const hidden = ModifierFlags.Private | ModifierFlags.Override;
    if (!name || ts.isPrivateIdentifier(name) || modifierFlags & hidden) return;
    const doc = checker.getSymbolAtLocation(name)?.getDocumentationComment(checker).trim() ?? "";
    this.found.push({ name: `${owner}.${name.getText()}`, doc });
  }

  /** Types that a declaration names where users see them: not in the bodies of functions. */
  #types(node: ts.Node): void {
    if (ts.isBlock(node) || isPrivateMember(node)) return;
    const isReference = ts.isTypeReferenceNode(node) || ts.isExpressionWithTypeArguments(node);
    const symbol =
      isReference && checker.getSymbolAtLocation(ts.isTypeReferenceNode(node) ? node.typeName : node.expression);
    if (symbol) this.add(symbol);
    node.forEachChild((child) => this.#types(child));
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
