/** Case folding in patterns that ignore case: some characters match two or three others, such as "ß" and "ss". */
import { CharacterSet, type Predicate } from "./character-set.ts";
import type { Node } from "./regex-node.ts";

type Character = Extract<Node, { kind: "character" }>;

/** Multi-character case folds: from a character to its folded text, and back. */
let folds: { readonly byCharacter: Map<number, string>; readonly byText: Map<string, number[]> } | undefined;

function longFolds() {
  if (folds) return folds;
  const byCharacter = new Map<number, string>();
  const byText = new Map<string, number[]>();
  const add = (codePoint: number, text: string) => {
    byCharacter.set(codePoint, text);
    byText.set(text, [...(byText.get(text) ?? []), codePoint]);
  };
  for (let codePoint = 0x80; codePoint < 0xfb20; codePoint++) {
    if (codePoint === 0xd800) codePoint = 0xe000;
    const character = String.fromCodePoint(codePoint);
    const upper = character.toUpperCase();
    if ([...upper].length > 1) add(codePoint, upper.toLowerCase());
    else if (character === "\u1E9E") add(codePoint, "ss");
    else if (character === "\u0130") add(codePoint, "i\u0307");
    else if (/[\u1F88-\u1F8F\u1F98-\u1F9F\u1FA8-\u1FAF\u1FBC\u1FCC\u1FFC]/.test(character))
      add(codePoint, character.toLowerCase().toUpperCase().toLowerCase());
  }
  folds = { byCharacter, byText };
  return folds;
}

/** Makes a sequence match regardless of case: characters become sets, or alternatives where several fold to one. */
export function foldNodes(nodes: readonly Node[]): Node {
  const result: Node[] = [];
  for (let i = 0; i < nodes.length; ) {
    let end = i;
    while (isFolded(nodes[end])) end++;
    if (end > i) result.push(folded(nodes.slice(i, end) as Character[]));
    else result.push(nodes[end++]!);
    i = end;
  }
  return result.length === 1 ? result[0]! : { kind: "sequence", nodes: result };
}

function isFolded(node: Node | undefined): boolean {
  return node?.kind === "character" && node.ignoreCase;
}

function folded(characters: readonly Character[]): Node {
  const { byCharacter, byText } = longFolds();
  const codePoints = characters.map(({ codePoint }) => codePoint);
  /** Nodes that match the characters from each index on. */
  const tails: Node[][] = new Array(codePoints.length + 1).fill([]);
  for (let i = codePoints.length - 1; i >= 0; i--) {
    const one = equalTo([codePoints[i]!]);
    const long = byCharacter.get(codePoints[i]!);
    const spelled = long && sequence([...long].map((letter) => equalTo([letter.codePointAt(0)!])));
    const tail: Node[] = [spelled ? { kind: "choice", nodes: [one, spelled] } : one, ...tails[i + 1]!];
    const others = [2, 3].flatMap((length) => {
      const text = String.fromCodePoint(...codePoints.slice(i, i + length)).toLowerCase();
      const equal = byText.get(text);
      return equal && [...text].length === length ? [sequence([equalTo(equal), ...tails[i + length]!])] : [];
    });
    tails[i] = others.length > 0 ? [{ kind: "choice", nodes: [sequence(tail), ...others] }] : tail;
  }
  return sequence(tails[0]!);
}

function sequence(nodes: readonly Node[]): Node {
  return nodes.length === 1 ? nodes[0]! : { kind: "sequence", nodes };
}

function equalTo(codePoints: readonly number[]): Node {
  const predicate = ignoringCase((codePoint) => codePoints.includes(codePoint));
  return { kind: "set", set: new CharacterSet(predicate) };
}

/** Ranges of Unicode blocks that have characters with case, as pairs of begin and end. */
const casedBlocks = [
  ...[0, 0x588, 0x10a0, 0x1100, 0x13a0, 0x1400, 0x1c80, 0x2200, 0x24b0, 0x24ea, 0x2c00, 0x2d30, 0xa640, 0xabc0],
  ...[0xff20, 0xff60, 0x10400, 0x10600, 0x10c80, 0x10d90, 0x118a0, 0x118e0, 0x16e40, 0x16ee0, 0x1e900, 0x1e950],
];

let groups: ReadonlyMap<number, readonly number[]> | undefined;

/** For each code point, the others with the same case folding. */
function caseGroups(): ReadonlyMap<number, readonly number[]> {
  if (groups) return groups;
  const members = new Map<string, number[]>();
  for (let block = 0; block < casedBlocks.length; block += 2)
    for (let codePoint = casedBlocks[block]!; codePoint < casedBlocks[block + 1]!; codePoint++) {
      const character = String.fromCodePoint(codePoint);
      const upper = character.toUpperCase();
      const folded = [...upper].length === 1 ? upper.toLowerCase() : character.toLowerCase();
      const key = [...folded].length === 1 ? folded : character;
      members.set(key, [...(members.get(key) ?? []), codePoint]);
    }
  groups = new Map(
    [...members.values()].flatMap((all) => (all.length > 1 ? all.map((one) => [one, all] as const) : [])),
  );
  return groups;
}

/** A class extended by all characters that differ from its members only by case. */
export function ignoringCase(predicate: Predicate): Predicate {
  return (codePoint) => predicate(codePoint) || (caseGroups().get(codePoint)?.some(predicate) ?? false);
}
