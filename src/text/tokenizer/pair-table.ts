/** Hash tables from pairs of numbers to numbers, and tries made of them. */

export class PairTable {
  #mask: number;
  #lefts: Int32Array;
  #rights: Int32Array;
  #values: Int32Array;
  #size = 0;

  constructor(expected = 16) {
    const slots = 2 ** Math.ceil(Math.log2(Math.max(16, expected * 2)));
    this.#mask = slots - 1;
    this.#lefts = new Int32Array(slots).fill(-1);
    this.#rights = new Int32Array(slots);
    this.#values = new Int32Array(slots);
  }

  /** The value of a pair of non-negative numbers; -1 if it is absent. */
  get(left: number, right: number): number {
    let slot = hash(left, right) & this.#mask;
    for (;;) {
      const found = this.#lefts[slot]!;
      if (found === left && this.#rights[slot] === right) return this.#values[slot]!;
      if (found === -1) return -1;
      slot = (slot + 1) & this.#mask;
    }
  }

  set(left: number, right: number, value: number): void {
    let slot = hash(left, right) & this.#mask;
    while (this.#lefts[slot] !== -1) {
      if (this.#lefts[slot] === left && this.#rights[slot] === right) {
        this.#values[slot] = value;
        return;
      }
      slot = (slot + 1) & this.#mask;
    }
    this.#lefts[slot] = left;
    this.#rights[slot] = right;
    this.#values[slot] = value;
    if (++this.#size * 2 > this.#mask) this.#grow();
  }

  #grow(): void {
    const [lefts, rights, values] = [this.#lefts, this.#rights, this.#values];
    const slots = lefts.length * 2;
    this.#mask = slots - 1;
    this.#lefts = new Int32Array(slots).fill(-1);
    this.#rights = new Int32Array(slots);
    this.#values = new Int32Array(slots);
    this.#size = 0;
    for (let i = 0; i < lefts.length; i++) if (lefts[i] !== -1) this.set(lefts[i]!, rights[i]!, values[i]!);
  }
}

/** A hash of two numbers; its low bits are good. */
export function hash(left: number, right: number): number {
  const mixed = Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca6b);
  return mixed ^ (mixed >>> 15);
}

/** A trie over UTF-16 units; each text has a number. */
export class Trie {
  readonly #children: PairTable;
  readonly #values: number[] = [-1];

  constructor(texts: Iterable<readonly [string, number]>, expectedUnits = 16) {
    this.#children = new PairTable(expectedUnits);
    for (const [text, value] of texts) {
      let node = 0;
      for (let i = 0; i < text.length; i++) {
        const unit = text.charCodeAt(i);
        let child = this.#children.get(node, unit);
        if (child < 0) {
          child = this.#values.length;
          this.#values.push(-1);
          this.#children.set(node, unit, child);
        }
        node = child;
      }
      this.#values[node] = value;
    }
  }

  /** The child of a node for a unit, -1 for none. The root is 0. */
  child(node: number, unit: number): number {
    return this.#children.get(node, unit);
  }

  /** The number of the text that ends at this node, -1 if none does. */
  value(node: number): number {
    return this.#values[node]!;
  }
}
