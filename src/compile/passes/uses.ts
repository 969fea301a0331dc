/** Which calls compute and read the values of a graph. */
import { argumentValues, type Graph, type GraphNode, type GraphValue } from "../graph.ts";

/** Uses of each value: by calls, each argument counted, and as an output. */
export class Uses {
  readonly #makers = new Map<GraphValue, GraphNode>();
  readonly #readers = new Map<GraphValue, GraphNode[]>();
  readonly #outputs: ReadonlySet<GraphValue>;

  constructor(graph: Graph) {
    this.#outputs = new Set(graph.outputs);
    for (const node of graph.nodes) {
      this.#makers.set(node.out, node);
      for (const value of argumentValues(node)) this.#readers.set(value, [...this.readers(value), node]);
    }
  }

  /** The call that computes a value; undefined for inputs, constants and state. */
  maker(value: GraphValue): GraphNode | undefined {
    return this.#makers.get(value);
  }

  /** The calls that read a value, in order; a call that reads it twice is listed twice. */
  readers(value: GraphValue): readonly GraphNode[] {
    return this.#readers.get(value) ?? [];
  }

  isOutput(value: GraphValue): boolean {
    return this.#outputs.has(value);
  }

  /** Whether exactly one argument of one call reads the value, which is no output. */
  isReadOnce(value: GraphValue): boolean {
    return !this.isOutput(value) && this.readers(value).length === 1;
  }
}
