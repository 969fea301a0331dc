/** Priority queue of possible merges: the lowest rank first, and among equal ranks the leftmost. */

export class MergeQueue {
  /** The entry that the last `pop` took. */
  rank = 0;
  position = 0;
  #ranks = new Int32Array(64);
  #positions = new Int32Array(64);
  #size = 0;

  clear(): void {
    this.#size = 0;
  }

  push(rank: number, position: number): void {
    if (this.#size === this.#ranks.length) this.#grow();
    const ranks = this.#ranks;
    const positions = this.#positions;
    let at = this.#size++;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (ranks[parent]! < rank || (ranks[parent] === rank && positions[parent]! <= position)) break;
      ranks[at] = ranks[parent]!;
      positions[at] = positions[parent]!;
      at = parent;
    }
    ranks[at] = rank;
    positions[at] = position;
  }

  /** Removes the first entry into `rank` and `position`; false when the queue is empty. */
  pop(): boolean {
    if (this.#size === 0) return false;
    const ranks = this.#ranks;
    const positions = this.#positions;
    this.rank = ranks[0]!;
    this.position = positions[0]!;
    const size = --this.#size;
    const rank = ranks[size]!;
    const position = positions[size]!;
    let at = 0;
    for (let child = 1; child < size; child = at * 2 + 1) {
      const right = child + 1;
      if (
        right < size &&
        (ranks[right]! < ranks[child]! || (ranks[right] === ranks[child] && positions[right]! < positions[child]!))
      )
        child = right;
      if (rank < ranks[child]! || (rank === ranks[child] && position <= positions[child]!)) break;
      ranks[at] = ranks[child]!;
      positions[at] = positions[child]!;
      at = child;
    }
    ranks[at] = rank;
    positions[at] = position;
    return true;
  }

  #grow(): void {
    const [ranks, positions] = [this.#ranks, this.#positions];
    this.#ranks = new Int32Array(ranks.length * 2);
    this.#positions = new Int32Array(ranks.length * 2);
    this.#ranks.set(ranks);
    this.#positions.set(positions);
  }
}
