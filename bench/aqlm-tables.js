/**
 * Rounding errors of an AQLM layer's results: lookup tables of sums in some bits, with one scale for 16 groups of inputs as in
 * the kernels; and for comparison 8-bit activations, as 4-bit layers have them. All else is in double precision.
 */
import { quantizeActivations } from "../dist/kernels/families/linear/activations.js";
import { createRandom } from "../dist/text/random.js";

const OUTPUTS = 512;
const INPUTS = 4096;
const GROUP = 8;
const BLOCK = 16;
const ENTRIES = 256;
/** Values of the second codebook beside the first's: it holds what the first leaves. */
const RESIDUE = 0.5;

/** @param {() => number} uniform Normal numbers by Box and Muller. */
const normal = (uniform) => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());

/** Activations of a row: normal ones, and with some channels that are twelve times as large. */
const inputs = {
  normal: (random) => Float32Array.from({ length: INPUTS }, () => normal(random)),
  "12 times larger in 1 of 256": (random) =>
    Float32Array.from({ length: INPUTS }, (_, i) => (i % 256 === 0 ? 12 : 1) * normal(random)),
};

/** Tables [group][codebook][entry] of vector . x. */
function tablesOf(vectors, x) {
  const tables = new Float64Array((INPUTS / GROUP) * 2 * ENTRIES);
  for (let row = 0; row < tables.length / ENTRIES; row++)
    for (let e = 0; e < ENTRIES; e++) {
      const at = ((row % 2) * ENTRIES + e) * GROUP;
      for (let j = 0; j < GROUP; j++) tables[row * ENTRIES + e] += vectors[at + j] * x[(row >> 1) * GROUP + j];
    }
  return tables;
}

function rounded(tables, bits) {
  const target = new Float64Array(tables.length);
  const length = BLOCK * 2 * ENTRIES;
  for (let start = 0; start < tables.length; start += length) {
    const block = tables.subarray(start, start + length);
    const largest = block.reduce((most, entry) => Math.max(most, Math.abs(entry)), 0);
    const step = largest / (2 ** (bits - 1) - 1);
    target.set(
      block.map((value) => Math.round(value / step) * step),
      start,
    );
  }
  return target;
}

/** A row as the 8-bit activations of 4-bit layers are. */
function rounded8(x) {
  const [q, scales, zeros] = [new Int8Array(x.length), new Float32Array(1), new Int32Array(1)];
  quantizeActivations(x, 1, x.length, { q, scales, zeros });
  return Float64Array.from(q, (value) => (value - zeros[0]) * scales[0]);
}

function results(tables, codes) {
  const rows = tables.length / ENTRIES;
  return Float64Array.from({ length: OUTPUTS }, (_, output) => {
    let sum = 0;
    for (let row = 0; row < rows; row++) sum += tables[row * ENTRIES + codes[output * rows + row]];
    return sum;
  });
}

function relativeError(found, expected) {
  const norm = (values) => Math.hypot(...values);
  return norm(found.map((value, i) => value - expected[i])) / norm(expected);
}

/** Rows of a table: for each kind of input what is rounded, and the relative error in the L2 norm. */
export function tableErrors() {
  return Object.entries(inputs).flatMap(([kind, make]) => {
    const source = createRandom(11);
    const random = () => source.uniform();
    const count = ENTRIES * GROUP;
    const vectors = Float64Array.from({ length: 2 * count }, (_, i) => (i < count ? 1 : RESIDUE) * normal(random));
    const codes = Uint8Array.from({ length: OUTPUTS * 2 * (INPUTS / GROUP) }, () => ENTRIES * random());
    const x = make(random);
    const tables = tablesOf(vectors, x);
    const exact = results(tables, codes);
    const row = (what, found) => [kind, what, relativeError(results(found, codes), exact).toExponential(1)];
    return [
      ...[8, 10, 12, 16].map((bits) => row(`tables of ${bits} bits`, rounded(tables, bits))),
      row("activations of 8 bits", tablesOf(vectors, rounded8(x))),
    ];
  });
}
