/** Log probabilities of tokens, from logits as the model gives them: before penalties, temperature and cuts. */
/** A token and the natural logarithm of its probability. */
export interface TokenProbability {
  /** Id of the token. */
  readonly id: number;
  /** Natural logarithm of its probability. */
  readonly logprob: number;
}

/** Of one place: the token that was taken, and the most likely ones, the likeliest first. */
export interface LogProbabilities extends TokenProbability {
  /** The most likely tokens, the likeliest first. */
  readonly top: readonly TokenProbability[];
}

/** Most tokens that a caller may ask for at each place. */
export const TOP_MAX = 100;

/** log softmax(logits) of the token `id` and of the `count` most likely, of equal ones the lowest ids, in double precision. */
export function logProbabilities(logits: Float32Array, id: number, count: number): LogProbabilities {
  let max = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < logits.length; i++) if (logits[i]! > max) max = logits[i]!;
  let total = 0;
  for (let i = 0; i < logits.length; i++) total += Math.exp(logits[i]! - max);
  const normalizer = max + Math.log(total);
  const of = (token: number): TokenProbability => ({ id: token, logprob: logits[token]! - normalizer });
  return { ...of(id), top: largest(logits, count).map(of) };
}

/** Ids of the largest values, the largest first. */
function largest(values: Float32Array, count: number): number[] {
  const ids: number[] = [];
  for (let i = 0; i < values.length && count > 0; i++) {
    if (ids.length === count && values[i]! <= values[ids[count - 1]!]!) continue;
    let place = ids.length;
    while (place > 0 && values[i]! > values[ids[place - 1]!]!) place--;
    ids.splice(place, 0, i);
    if (ids.length > count) ids.pop();
  }
  return ids;
}
