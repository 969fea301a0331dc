/** Merges several streams into one, in the order in which their values come. */

/** A value, and the number of the stream that gave it. */
export interface Numbered<E> {
  readonly from: number;
  readonly value: E;
}

/**
 * Gives the values of all generators, each as soon as it comes, and their results at the end; `ended` is called with each
 * result at once. An error of one ends all. `end` is called before the generators are ended, for whatever reason.
 */
export async function* mergeNumbered<E, R>(
  generators: readonly AsyncGenerator<E, R, void>[],
  end: () => Promise<void> = async () => {},
  ended: (from: number, result: R) => void = () => {},
): AsyncGenerator<Numbered<E>, R[], void> {
  const results = new Array<R>(generators.length);
  const coming = new Map<number, Promise<{ from: number; next: IteratorResult<E, R> }>>();
  const ask = (from: number) => {
    const asked = generators[from]!.next().then((next) => ({ from, next }));
    // The consumer may be busy when this fails: it gets the error with its next read.
    asked.catch(() => {});
    coming.set(from, asked);
  };
  try {
    for (const from of generators.keys()) ask(from);
    while (coming.size > 0) {
      const { from, next } = await Promise.race(coming.values());
      coming.delete(from);
      if (next.done) {
        results[from] = next.value;
        ended(from, next.value);
      } else {
        ask(from);
        yield { from, value: next.value };
      }
    }
    return results;
  } finally {
    await end();
    await Promise.allSettled(generators.map((generator) => generator.return(undefined as never)));
  }
}

/** Merges values without numbers. A single generator is read only when values are asked for. */
export async function* merge<E>(generators: readonly AsyncGenerator<E>[]): AsyncGenerator<E> {
  if (generators.length === 1) yield* generators[0]!;
  else for await (const { value } of mergeNumbered(generators)) yield value;
}
