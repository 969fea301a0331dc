/** Contents of messages as texts. What a model of texts cannot see is named in the prompt, or refused. */
import { ApiError } from "./errors.ts";

/**
 * What becomes of images and files that a model cannot see: named in the prompt, refused, or (`auto`) refused where the
 * user has just sent them and named in results of tools and in what was said before.
 */
export type UnseenPolicy = "auto" | "name" | "refuse";

/** A part of a content: a text, or what a model of texts cannot see. */
export type Part = string | Unseen;

/** An image or file. */
interface Unseen {
  readonly what: "image" | "audio" | "document" | "file" | "content";
  /** Its type or name, such as "image/png"; "" where that is unknown. */
  readonly label: string;
}

/** Where a content stands: its path in the request, and whether the user has just said it. */
export interface Place {
  readonly path: string;
  readonly isNew: boolean;
}

const LABEL_MAX = 100;

/** The text of a content; parts that are null are no part of it. ApiError 400 for what is not to be named. */
export function contentText(
  parts: readonly (Part | null)[],
  { path, isNew }: Place,
  policy: UnseenPolicy,
  between = "",
): string {
  let text = "";
  let before: Part | null = null;
  for (const [index, part] of parts.entries()) {
    if (part === null) continue;
    const isSeen = typeof part === "string";
    if (!isSeen && (policy === "refuse" || (policy === "auto" && isNew))) {
      const param = `${path}.${index}`;
      throw new ApiError(400, `${param}: ${sentence(part)}`, { code: "unsupported_content", param });
    }
    const separator = before === null ? "" : isSeen && typeof before === "string" ? between : "\n";
    text += separator + (isSeen ? part : named(part));
    before = part;
  }
  return text;
}

const PLURALS = {
  image: "images",
  audio: "audio",
  document: "documents but their text",
  file: "files",
  content: "content of this kind",
} as const;

function sentence({ what, label }: Unseen): string {
  return `this model reads no ${PLURALS[what]}${label === "" ? "" : ` (found ${shown(label)})`}`;
}

function named({ what, label }: Unseen): string {
  return `[${what}${label === "" ? "" : ` ${shown(label)}`} not shown: this model reads no ${PLURALS[what]}]`;
}

/** A part of a kind that the API does not have: its text, where it is one. */
export function otherPart(part: { readonly type: string }): Part {
  const { text } = part as { text?: unknown };
  return typeof text === "string" ? text : { what: "content", label: part.type };
}

/** A type or name in one line. */
function shown(label: string): string {
  return label.replace(/[^\p{L}\p{N} ./+_-]/gu, "?").slice(0, LABEL_MAX);
}

/** Media types whose bytes are text. */
const TEXTS =
  /^(?:text\/[\w.+-]+|application\/(?:[\w.-]+\+)?(?:json|xml|yaml|toml|javascript|x-(?:sh|yaml|ndjson|python)))$/;

/** The text of a file of a media type in base64; null where the type is of none. */
export function base64Text(type: string, data: string): string | null {
  return TEXTS.test(type) ? Buffer.from(data, "base64").toString("utf8") : null;
}

/** A file of a `data:` URL, with its name in front where it is a text. */
export function filePart(name: string | null | undefined, url: string | null | undefined): Part {
  const [, type = "", data = ""] = /^data:([\w.+-]+\/[\w.+-]+)(?:;[\w=-]+)*;base64,(.*)$/s.exec(url ?? "") ?? [];
  const text = base64Text(type, data);
  if (text === null) return { what: "file", label: name || dataType(url ?? "") };
  return name ? `${name}\n\n${text}\n` : `${text}\n`;
}

/** The type of a `data:` URL; "" for others, whose address is not for prompts. */
export function dataType(url: string): string {
  return /^data:([\w.+-]+\/[\w.+-]+)[;,]/.exec(url)?.[1] ?? "";
}

/** Blocks with which clients tell their makers about themselves. They change with each conversation, and with them the prompt. */
const METADATA = /^\s*x-anthropic-[\w-]+:/;
const METADATA_LINES = /^(?:\s*x-anthropic-[\w-]+:[^\n]*(?:\n|$))+/;

/** Whether a block of a system prompt is metadata of the client's, which is no part of the prompt. */
function isMetadata(text: string): boolean {
  return METADATA.test(text);
}

/** A system prompt that is one text, without lines of metadata at its beginning. */
function withoutMetadata(text: string): string {
  return text.replace(METADATA_LINES, "");
}

/** The text of a system prompt's parts, or of its one text. */
export function systemText(content: string | readonly string[], between = ""): string {
  if (typeof content === "string") return withoutMetadata(content);
  return content.filter((text) => !isMetadata(text)).join(between);
}

/** The state of the repository, with which Claude Code ends its system prompt. */
const SNAPSHOT = /(?:^|\n+)gitStatus: This is the git status at the start of the conversation/;

/** Where the part of a system prompt begins that is other in each conversation; its length where it has none. */
export function snapshotStart(text: string): number {
  return SNAPSHOT.exec(text)?.index ?? text.length;
}
