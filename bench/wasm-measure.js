/** Measurements of a loaded program, in Node and in pages alike. */

/**
 * @typedef {object} Timings Milliseconds and tokens a second.
 * @property {number} loadMs
 * @property {number} firstTokenMs
 * @property {number} secondTokenMs The token after the first.
 * @property {number} decode
 * @property {number[]} prefill For each prompt length.
 */

/** @param {readonly number[]} values */
export function middle(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}

/**
 * @param {() => Promise<any>} load @param {{ prompts: number[], decode: number }} counts tokens
 * @returns {Promise<Timings>}
 */
export async function measure(load, { prompts, decode }) {
  const start = performance.now();
  const model = await load();
  const loadMs = performance.now() - start;
  const decoder = model.createDecoder();
  const token = (i) => (i * 7919 + 13) % decoder.vocabularySize;
  const time = async (work) => {
    const before = performance.now();
    await work();
    return performance.now() - before;
  };
  const firstTokenMs = await time(() => decoder.prefill([token(0)]));
  const steps = [];
  for (let i = 0; i < decode; i++) steps.push(await time(() => decoder.step(token(i))));
  const prefill = [];
  for (const count of prompts) {
    const runs = [];
    for (let run = 0; run < (count > 256 ? 1 : 3); run++) {
      // Others each time, as what was read before is in the store.
      const ids = Array.from({ length: count }, (_, i) => token(i + 1000 * (run + 1)));
      decoder.rewind(0);
      runs.push((1000 * count) / (await time(() => decoder.prefill(ids))));
    }
    prefill.push(middle(runs));
  }
  const result = { loadMs, firstTokenMs, secondTokenMs: steps[0], decode: 1000 / middle(steps), prefill };
  await decoder.dispose();
  await model.dispose();
  return result;
}

const PROMPTS = 19;

/**
 * The first prompt after load and the median of later ones once their code has been replaced, by what their mean length
 * takes: each has a length of its own, which is planned. For a process or a page of its own: code is kept when a model is
 * loaded again.
 * @param {() => Promise<any>} load @param {number} length tokens
 * @returns {Promise<{ loadMs: number, firstPromptMs: number, laterPromptMs: number }>}
 */
export async function measureFirstPrompt(load, length) {
  const begin = performance.now();
  const model = await load();
  const loadMs = performance.now() - begin;
  const decoder = model.createDecoder();
  const times = [];
  for (let run = 0; run < PROMPTS; run++) {
    const count = length + (run % 2 === 0 ? -run / 2 : (run + 1) / 2);
    const ids = Array.from({ length: count }, (_, i) => (i * 7919 + run) % decoder.vocabularySize);
    decoder.rewind(0);
    const start = performance.now();
    await decoder.prefill(ids);
    times.push(((performance.now() - start) * length) / count);
  }
  await decoder.dispose();
  await model.dispose();
  return { loadMs, firstPromptMs: times[0], laterPromptMs: middle(times.slice(PROMPTS >> 1)) };
}
