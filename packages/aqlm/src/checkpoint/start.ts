/** First codebooks: k-means on a sample of groups, then on what is left of them, codebook by codebook. */
import { type Matrix, matrix, multiplyTransposed } from "lowbit/extension/checkpoint";
import type { Codebooks } from "./search.ts";

/** Groups that k-means looks at; a codebook has at most 2^16 vectors, most have 2^8. */
const SAMPLE_PER_ENTRY = 32;
const ROUNDS = 10;

/** Whole numbers 0 .. limit - 1, the same for the same seed: xorshift32. */
function randomIntegers(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % limit;
  };
}

export function startCodebooks(groups: Matrix, codebooks: number, entries: number): Codebooks {
  const length = groups.columns;
  const random = randomIntegers(0x9e3779b9);
  const rest = sampleRows(groups, Math.min(groups.rows, SAMPLE_PER_ENTRY * entries), random);
  const vectors = matrix(codebooks * entries, length);
  for (let c = 0; c < codebooks; c++) {
    const centers = kMeans(rest, entries, random);
    vectors.data.set(centers.data, c * entries * length);
    const nearest = assign(rest, centers);
    for (let i = 0; i < rest.rows; i++)
      for (let j = 0; j < length; j++) rest.data[i * length + j]! -= centers.data[nearest[i]! * length + j]!;
  }
  return { codebooks, entries, vectors };
}

function sampleRows({ rows, columns, data }: Matrix, count: number, random: (limit: number) => number): Matrix {
  const sample = matrix(count, columns);
  const stride = rows / count;
  for (let i = 0; i < count; i++) {
    const row = count === rows ? i : Math.floor(i * stride) + random(Math.max(1, Math.floor(stride)));
    sample.data.set(data.subarray(row * columns, (row + 1) * columns), i * columns);
  }
  return sample;
}

/** Lloyd's algorithm from random rows; a center that nothing is near to moves to a random row. */
function kMeans(points: Matrix, entries: number, random: (limit: number) => number): Matrix {
  const length = points.columns;
  const centers = matrix(entries, length);
  const place = (e: number) => {
    const row = random(points.rows);
    centers.data.set(points.data.subarray(row * length, (row + 1) * length), e * length);
  };
  for (let e = 0; e < entries; e++) place(e);
  const counts = new Int32Array(entries);
  for (let round = 0; round < ROUNDS; round++) {
    const nearest = assign(points, centers);
    centers.data.fill(0);
    counts.fill(0);
    for (let i = 0; i < points.rows; i++) {
      counts[nearest[i]!]!++;
      for (let j = 0; j < length; j++) centers.data[nearest[i]! * length + j]! += points.data[i * length + j]!;
    }
    for (let e = 0; e < entries; e++) {
      if (counts[e] === 0) place(e);
      else for (let j = 0; j < length; j++) centers.data[e * length + j]! /= counts[e]!;
    }
  }
  return centers;
}

/** Index of the nearest center of each point. */
function assign(points: Matrix, centers: Matrix): Int32Array {
  const entries = centers.rows;
  const dots = multiplyTransposed(points, centers).data;
  const halfSquares = new Float32Array(entries);
  for (let e = 0; e < entries; e++) {
    let square = 0;
    for (let j = 0; j < centers.columns; j++) square += centers.data[e * centers.columns + j]! ** 2;
    halfSquares[e] = square / 2;
  }
  const nearest = new Int32Array(points.rows);
  for (let i = 0; i < points.rows; i++) {
    let best = Number.NEGATIVE_INFINITY;
    for (let e = 0; e < entries; e++) {
      const score = dots[i * entries + e]! - halfSquares[e]!;
      if (score > best) {
        best = score;
        nearest[i] = e;
      }
    }
  }
  return nearest;
}
