/** Several streams as one, in the order in which their values come. */

/** The values of all iterables, each as soon as it is there. An error of one ends all. */
export async function* merge<T>(iterables: readonly AsyncIterable<T>[]): AsyncGenerator<T> {
  if (iterables.length === 1) {
    yield* iterables[0]!;
    return;
  }
  const iterators = iterables.map((iterable) => iterable[Symbol.asyncIterator]());
  const coming = new Map<number, Promise<{ from: number; next: IteratorResult<T> }>>();
  const ask = (from: number) => {
    const asked = iterators[from]!.next().then((next) => ({ from, next }));
    // Whoever reads the values may do other things when it fails: it is told when it comes back.
    asked.catch(() => {});
    coming.set(from, asked);
  };
  try {
    for (const from of iterators.keys()) ask(from);
    while (coming.size > 0) {
      const { from, next } = await Promise.race(coming.values());
      coming.delete(from);
      if (next.done) continue;
      ask(from);
      yield next.value;
    }
  } finally {
    await Promise.allSettled(iterators.map((iterator) => iterator.return?.()));
  }
}
