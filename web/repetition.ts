/** Answers that repeat themselves without end, as those of small models do. */

/** The longest part that is looked for. */
const PART_MAX = 400;
/** So many times, and characters, an answer ends with the same part before it counts as a repetition. */
const TIMES = 8;
const LENGTH_MIN = 800;
/** Characters by which the part before is found. */
const TAIL = 24;

/** Whether a text ends with a part that is there again and again. */
export function isRepeating(text: string): boolean {
  // No more than the longest part is looked through: this is asked with each piece of an answer.
  const near = text.slice(-(PART_MAX + TAIL));
  const before = near.lastIndexOf(near.slice(-TAIL), near.length - TAIL - 1);
  const part = near.length - TAIL - before;
  const needed = Math.max(TIMES * part, LENGTH_MIN);
  if (before < 0 || text.length < needed) return false;
  for (let i = text.length - needed; i < text.length - part; i++) if (text[i] !== text[i + part]) return false;
  return true;
}
