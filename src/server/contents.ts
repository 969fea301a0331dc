/** Contents of messages as text. Images and files, which models of text cannot see, are named in the prompt or refused. */
import { ApiError } from "./errors.ts";

/**
 * What happens to images and files that a model cannot see: named in the prompt ("name"), refused ("refuse"), or ("auto")
 * refused in the user's newest message, and named in tool results and earlier messages.
 */
export type UnseenPolicy = "auto" | "name" | "refuse";

/** A part of a content: text, or an image or file. */
export type Part = string | Unseen;

/** An image or file, which models of text cannot see. */
interface Unseen {
  readonly what: "image" | "audio" | "document" | "file" | "content";
  /** Media type or name, such as "image/png"; "" where that is unknown. */
  readonly label: string;
}

/** Place of a content: its path in the request, and whether it is the user's newest message. */
export interface Place {
  readonly path: string;
  readonly isNew: boolean;
}

const LABEL_MAX = 100;

/**
 * Joins the parts of a content to one text; null parts are left out. ApiError 400 for images and files that the policy
 * refuses.
 */
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

/** A part of an unknown kind: its `text`, where it has one. */
export function otherPart(part: { readonly type: string }): Part {
  const { text } = part as { text?: unknown };
  return typeof text === "string" ? text : { what: "content", label: part.type };
}

/** A media type or file name, made safe to show in one line. */
function shown(label: string): string {
  return label.replace(/[^\p{L}\p{N} ./+_-]/gu, "?").slice(0, LABEL_MAX);
}

/** Media types whose bytes are text. */
const TEXTS =
  /^(?:text\/[\w.+-]+|application\/(?:[\w.-]+\+)?(?:json|xml|yaml|toml|javascript|x-(?:sh|yaml|ndjson|python)))$/;

/** The text of a base64 file of a media type; null for types that are not text. */
export function base64Text(type: string, data: string): string | null {
  return TEXTS.test(type) ? Buffer.from(data, "base64").toString("utf8") : null;
}

/** A file of a `data:` URL: its text with its name in front, or an unseen file. */
export function filePart(name: string | null | undefined, url: string | null | undefined): Part {
  const [, type = "", data = ""] = /^data:([\w.+-]+\/[\w.+-]+)(?:;[\w=-]+)*;base64,(.*)$/s.exec(url ?? "") ?? [];
  const text = base64Text(type, data);
  if (text === null) return { what: "file", label: name || dataType(url ?? "") };
  return name ? `${name}\n\n${text}\n` : `${text}\n`;
}

/** The media type of a `data:` URL; "" for others, whose addresses do not go into prompts. */
export function dataType(url: string): string {
  return /^data:([\w.+-]+\/[\w.+-]+)[;,]/.exec(url)?.[1] ?? "";
}

/** Blocks of client metadata in system prompts. They differ in each conversation, so they would defeat the prefix cache. */
const METADATA = /^\s*x-anthropic-[\w-]+:/;
const METADATA_LINES = /^(?:\s*x-anthropic-[\w-]+:[^\n]*(?:\n|$))+/;

/** Whether a block of a system prompt is client metadata, which is left out of the prompt. */
function isMetadata(text: string): boolean {
  return METADATA.test(text);
}

/** A system prompt of one text, without the lines of client metadata at its beginning. */
function withoutMetadata(text: string): string {
  return text.replace(METADATA_LINES, "");
}

/** The text of a system prompt of one text or several blocks. */
export function systemText(content: string | readonly string[]): string {
  if (typeof content === "string") return withoutMetadata(content);
  return content.filter((text) => !isMetadata(text)).join("");
}

/** The state of the git repository, which ends Claude Code's system prompt. */
const SNAPSHOT = /(?:^|\n+)gitStatus: This is the git status at the start of the conversation/;

/** Where the part of a system prompt begins that differs in each conversation; its length where there is none. */
export function snapshotStart(text: string): number {
  return SNAPSHOT.exec(text)?.index ?? text.length;
}
