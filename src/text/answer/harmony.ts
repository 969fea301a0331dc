/** Answers in channels, as gpt-oss writes them: thinking, text, and calls to recipients. */
import { CHANNEL_CLOSE } from "../thinking.ts";
import type { AnswerFormat } from "./answer-format.ts";
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";
import { passStray, readArguments } from "./json.ts";

const START = "<|start|>";
const CHANNEL = "<|channel|>";
const CONSTRAIN = "<|constrain|>";
const MESSAGE = "<|message|>";
const ENDS = ["<|end|>", "<|call|>", "<|return|>"];

/** Where a call begins. The channel marker by itself is not enough: it may begin thinking or text. */
const CALL = `${CHANNEL}commentary to=functions.`;

export const harmony: AnswerFormat = {
  specialTokens: [START, CHANNEL, CONSTRAIN, MESSAGE, ...ENDS],
  closeThinking: CHANNEL_CLOSE,
  beginThinking: "",
  callStarts: [CHANNEL, START],
  callToken: CALL,
  callSteps: [
    { kind: "text", text: CALL },
    { kind: "name" },
    { kind: "text", text: ` ${CONSTRAIN}json${MESSAGE}` },
    { kind: "arguments" },
  ],
  *read(cursor, writer) {
    while ((yield* cursor.peek()) !== "") yield* readMessage(cursor, writer);
  },
};

/** Reads a header with channel and recipient, and the message after it. Without a header, the answer is read as text. */
function* readMessage(cursor: AnswerCursor, writer: AnswerWriter): Reading<void> {
  const head = yield* cursor.attempt(function* () {
    yield* cursor.skipSpace();
    if (yield* cursor.takes(START)) {
      // The header then begins with a role, after which the model may write the recipient.
    } else if (!(yield* cursor.takes(CHANNEL))) return null;
    else cursor.skip(-CHANNEL.length);
    const found = yield* cursor.before([MESSAGE, ...ENDS]);
    return found?.marker === MESSAGE ? found.text : null;
  });
  const channel = head?.split(CHANNEL)[1]?.trim().match(/^\w+/)?.[0] ?? "";
  const recipient = head?.match(/to=(?:functions\.)?([\w.-]+)/)?.[1];
  if (recipient !== undefined && (yield* readCall(cursor, writer, recipient))) return;
  if (head === null) {
    yield* readPlain(cursor, writer);
    return;
  }
  writer.think(channel === "analysis");
  yield* readText(cursor, writer, []);
  writer.think(false);
}

/** Reads text up to where a header may begin. */
function* readPlain(cursor: AnswerCursor, writer: AnswerWriter): Reading<void> {
  const heads = [START, CHANNEL];
  for (const marker of heads) if (yield* cursor.takes(marker)) writer.write(marker);
  yield* readText(cursor, writer, heads);
}

/** Reads text up to one of `heads`, or past an end marker that the next message or the end of the answer follows. */
function* readText(cursor: AnswerCursor, writer: AnswerWriter, heads: readonly string[]): Reading<void> {
  for (;;) {
    const marker = yield* cursor.until([...heads, ...ENDS], writer.write);
    if (marker === null) return;
    if (heads.includes(marker)) {
      cursor.skip(-marker.length);
      return;
    }
    const at = yield* cursor.spaceEnd(0);
    if ((yield* cursor.whichAt(at, [START, CHANNEL])) !== false) return;
    writer.write(marker);
  }
}

function* readCall(cursor: AnswerCursor, writer: AnswerWriter, name: string): Reading<boolean> {
  return yield* cursor.attempt(function* () {
    if (!(yield* readArguments(cursor, writer, name, { ends: ENDS }))) return false;
    yield* cursor.attempt(() => passStray(cursor, ENDS));
    yield* cursor.passes(ENDS);
    return true;
  });
}
