/** Answer parsers, as a module that can be loaded lazily. Re-exports only. */
export type { AnswerFormat } from "./answer-format.ts";
export { AnswerParser } from "./answer-parser.ts";
export { answerFormat } from "./formats.ts";
