/** Parsers of answers, a module of their own for those who load them late. Re-exports only. */
export { AnswerParser } from "./answer-parser.ts";
export { type AnswerFormat, answerFormat } from "./formats.ts";
