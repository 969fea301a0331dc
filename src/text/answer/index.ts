/** Parsers of answers, a module of their own for those who load them late. Re-exports only. */
export type { AnswerFormat } from "./answer-format.ts";
export { AnswerParser } from "./answer-parser.ts";
export { answerFormat } from "./formats.ts";
