/** Characters in patterns that ignore case: some are equal to two or three others, such as "ß" to "ss". */
import { CharacterSet, classOf } from "./character-set.ts";
import type { Node } from "./regex-syntax.ts";

type Character = Extract<Node, { kind: "character" }>;

/** A character to the lower-case text that it is equal to, where that is longer, and back. */
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

/** A sequence in which characters that ignore case are sets, and choices where several are equal to one. */
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
  /** What matches the characters from each on. */
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
  const source = codePoints.map((codePoint) => `\\u{${codePoint.toString(16)}}`).join("");
  return { kind: "set", set: new CharacterSet(classOf(source, true)) };
}
