/** Compares the rate at which decoding reads weights with the rate at which the same threads read them without computing. */
import { inspectProgram } from "../dist/index.js";
import { digits, table } from "./report.js";

/**
 * GB of weights that a token reads: a table of embeddings that is no output layer's is read by the row, and of stacks of experts
 * those that a token takes. @param {string} path @param {number} [experts] Experts of a token.
 */
export async function gigabytesOfToken(path, experts = 0) {
  const { weights } = await inspectProgram(path);
  const bytesOf = ({ operators, shape, byteLength }) => {
    if (operators.every((name) => /embedding/.test(name))) return byteLength / shape[0];
    return shape.length === 3 ? (byteLength * experts) / shape[0] : byteLength;
  };
  return weights.reduce((sum, weight) => sum + bytesOf(weight), 0) / 1e9;
}

/**
 * How much of what memory gives decoding reads, and what it would read at `asked` times the peer's speed.
 * @param {Record<string, { bytes: number, rate: number, memory: number }>} decoding GB a token, tokens and GB a second.
 * @param {{ asked: number, peer: number }} wanted The peer's tokens a second.
 */
export function boundTable(decoding, { asked, peer }) {
  const row = ([name, { bytes, rate, memory }]) => [
    name,
    ...[bytes, bytes * rate, memory].map(digits),
    `${((100 * bytes * rate) / memory).toFixed(0)} %`,
    digits(asked * peer * bytes),
  ];
  const head = [
    "decode",
    "GB a token",
    "reads, GB a second",
    "memory gives, GB a second",
    "of it",
    `at ${asked} times the peer`,
  ];
  return `Plain reads of the same weights by the same threads, in turn with the above; the last column is what ${asked} times node-llama-cpp would read a second.\n\n${table(head, Object.entries(decoding).map(row))}`;
}
