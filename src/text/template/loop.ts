/** The `loop` variable of for loops. */
import { equals } from "./compare.ts";
import { typeError } from "./faults.ts";
import { Builtin } from "./signature.ts";
import { Callable, iterate, lengthOf, Tuple, Undefined, type Value } from "./values.ts";

/** Renders a recursive loop's body for other items, one level deeper. */
export type Recurse = (items: Value, depth: number) => string;

export class Loop extends Callable {
  readonly typeName = "LoopContext";
  readonly #items: Value;
  readonly #recurse: Recurse | null;
  readonly #depth: number;
  #iterator: Iterator<Value>;
  #index = -1;
  #length: number | undefined;
  /** The next item, if it was already taken from the iterator. */
  #after: { readonly value: Value } | null = null;
  #isOver = false;
  #current: Value | undefined;
  #before: Value | undefined;
  #changed: Value | undefined;

  /** `depth` counts from 0. */
  constructor(items: Value, recurse: Recurse | null, depth: number) {
    super();
    this.#items = items;
    this.#iterator = iterate(items)[Symbol.iterator]();
    this.#recurse = recurse;
    this.#depth = depth;
  }

  /** Advances to the next item; undefined after the last. */
  next(): Value | undefined {
    const next = this.#peek();
    this.#after = null;
    if (!next) return undefined;
    this.#index++;
    this.#before = this.#current;
    this.#current = next.value;
    return next.value;
  }

  #peek(): { readonly value: Value } | null {
    if (this.#after || this.#isOver) return this.#after;
    const { done, value } = this.#iterator.next();
    if (done) this.#isOver = true;
    else this.#after = { value };
    return this.#after;
  }

  get length(): number {
    this.#length ??= lengthOf(this.#items) ?? this.#countRest();
    return this.#length;
  }

  /** Counts the remaining items. An iterator's are taken to be counted, and kept for later. */
  #countRest(): number {
    const rest: Value[] = [];
    for (let next = this.#iterator.next(); !next.done; next = this.#iterator.next()) rest.push(next.value);
    this.#iterator = rest[Symbol.iterator]();
    return rest.length + this.#index + 1 + (this.#after ? 1 : 0);
  }

  call(args: readonly Value[]): Value {
    if (!this.#recurse) typeError("The loop must have the 'recursive' marker to be called recursively.");
    if (args.length !== 1)
      typeError(`LoopContext.__call__() takes 1 positional argument but ${args.length} were given`);
    return this.#recurse(args[0]!, this.#depth + 1);
  }

  override describe(): string {
    return `<LoopContext ${this.#index + 1}/${this.length}>`;
  }

  override attribute(name: string): Value | undefined {
    switch (name) {
      case "index":
        return this.#index + 1;
      case "index0":
        return this.#index;
      case "first":
        return this.#index === 0;
      case "last":
        return this.#peek() === null;
      case "length":
        return this.length;
      case "revindex":
        return this.length - this.#index;
      case "revindex0":
        return this.length - this.#index - 1;
      case "depth":
        return this.#depth + 1;
      case "depth0":
        return this.#depth;
      case "previtem":
        return this.#index === 0 ? new Undefined(() => "there is no previous item") : this.#before;
      case "nextitem": {
        const next = this.#peek();
        return next ? next.value : new Undefined(() => "there is no next item");
      }
      case "cycle":
        return new Builtin("bound method LoopContext.cycle", (args) => this.#cycle(args), "method");
      case "changed":
        return new Builtin("bound method LoopContext.changed", (args) => this.#hasChanged(new Tuple(args)), "method");
    }
    return undefined;
  }

  #cycle(args: readonly Value[]): Value {
    if (args.length === 0) typeError("no items for cycling given");
    return args[this.#index % args.length]!;
  }

  #hasChanged(value: Value): boolean {
    if (this.#changed !== undefined && equals(this.#changed, value)) return false;
    this.#changed = value;
    return true;
  }
}
