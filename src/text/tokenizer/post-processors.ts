/** The post-processors of tokenizer.json, which add special tokens around the ids of texts. */
import type { Field } from "./field.ts";
import { ID_LIMIT } from "./vocabulary.ts";
import type { Work } from "./work-limit.ts";

export interface PostProcessor {
  /** Processes lists of ids (at first one for each text); adds no special tokens where `adds` is false. */
  process(lists: readonly (readonly number[])[], adds: boolean, work: Work): (readonly number[])[];
  /** Declared number of special tokens added to one text or to two. */
  added(texts: 1 | 2): number;
}

type Piece = { readonly sequence: number } | { readonly ids: readonly number[] };

const readers: Record<string, (field: Field) => PostProcessor> = {
  BertProcessing: (field) => readPair(field, (sep) => [[], [sep]]),
  RobertaProcessing: (field) => readPair(field, (sep) => [[sep], [sep]]),
  ByteLevel: () => ({ process: (lists) => [...lists], added: () => 0 }),
  TemplateProcessing: readTemplate,
  Sequence(field) {
    const parts = field.get("processors").items().map(readPostProcessor);
    return {
      process: (lists, adds, work) => parts.reduce((result, part) => part.process(result, adds, work), [...lists]),
      added: (texts) => parts.reduce((sum, part) => sum + part.added(texts), 0),
    };
  },
};

/** Reads a post-processor. InvalidFileError for an unknown type. */
export function readPostProcessor(field: Field): PostProcessor {
  const type = field.get("type").text();
  if (!Object.hasOwn(readers, type)) throw field.get("type").invalid(`"${type}" is no post-processor`);
  return readers[type]!(field);
}

/** Puts `cls` before and `sep` after the first text; `others` returns the ids around further ones. */
function readPair(field: Field, others: (sep: number) => [number[], number[]]): PostProcessor {
  const [cls, sep] = ["cls", "sep"].map((key) => {
    const pair = field.get(key);
    if (pair.array().length !== 2) throw pair.expected("a token and its id");
    pair.item(0).text();
    return pair.item(1).count(0, ID_LIMIT - 1);
  }) as [number, number];
  const [before, behind] = others(sep);
  return {
    process(lists, adds) {
      if (!adds) return [...lists];
      return lists.map((ids, i) => (i === 0 ? [cls, ...ids, sep] : [...before, ...ids, ...behind]));
    },
    added: (texts) => (texts === 1 ? 2 : 2 + before.length + behind.length),
  };
}

function readTemplate(field: Field): PostProcessor {
  const tokens = readTokens(field.get("special_tokens"));
  const templates = [readPieces(field.get("single"), tokens), readPieces(field.get("pair"), tokens)] as const;
  const added = templates.map((pieces) =>
    pieces.reduce((sum, piece) => sum + ("ids" in piece ? piece.ids.length : 0), 0),
  );
  return {
    process(lists, adds, work) {
      const pieces = templates[lists.length - 1];
      if (!pieces) throw field.unsupported(`a template for ${lists.length} parts is not supported`);
      let length = 0;
      return pieces.flatMap((piece): (readonly number[])[] => {
        if ("ids" in piece && !adds) return [];
        const ids = "ids" in piece ? piece.ids : lists[piece.sequence];
        if (!ids) throw field.invalid("its template for one text has a second one");
        length += ids.length;
        work.add(ids.length + 1);
        work.checkLength(length);
        return [ids];
      });
    },
    added: (texts) => added[texts - 1]!,
  };
}

function readTokens(field: Field): Map<string, number[]> {
  const { value } = field;
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw field.expected("an object");
  return new Map(
    Object.keys(value).map((name) => {
      const ids = field.get(name).get("ids");
      return [name, ids.items().map((id) => id.count(0, ID_LIMIT - 1))];
    }),
  );
}

function readPieces(field: Field, tokens: ReadonlyMap<string, readonly number[]>): Piece[] {
  return field.items().map((item): Piece => {
    const sequence = item.optional("Sequence");
    if (sequence) return { sequence: sequence.get("id").oneOf(["A", "B"]) === "A" ? 0 : 1 };
    const name = item.get("SpecialToken").get("id");
    const ids = tokens.get(name.text());
    if (!ids) throw name.invalid(`${JSON.stringify(name.text())} is none of special_tokens`);
    return { ids };
  });
}
