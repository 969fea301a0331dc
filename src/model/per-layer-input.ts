/**
 * Per-layer embeddings (Gemma 3n, Gemma 4): a table with a short embedding of each token for every layer. A layer adds its
 * embedding, multiplied by a gate of the hidden state.
 */
import type { Activation } from "../ops/ops.ts";
import type { LayerPart, LayerPass, PartActivations, Place, SharedTable } from "./layer.ts";
import { linearSlots, vectorSlot, type WeightSlot } from "./weight-slot.ts";

export interface PerLayerConfig {
  /** Elements of a token's hidden state. */
  readonly hidden: number;
  /** Size of the table's vocabulary. */
  readonly vocabulary: number;
  /** Number of layers. */
  readonly depth: number;
  /** Elements of a layer's embedding. */
  readonly size: number;
  /** Activation of the gate. */
  readonly activation: Activation;
}

const TABLE = "model.embed_tokens_per_layer.weight";
const PROJECTION = "model.per_layer_model_projection";
const NORM = "model.per_layer_projection_norm";

/** The table, combined with the token's embedding x: (norm(project(x) / sqrt(hidden)) + row * sqrt(size)) / sqrt(2). */
export class PerLayerTable implements SharedTable {
  readonly config: PerLayerConfig;

  constructor(config: PerLayerConfig) {
    this.config = config;
  }

  slots(): WeightSlot[] {
    const { hidden, vocabulary, depth, size } = this.config;
    return [
      { name: TABLE, shape: [vocabulary, depth * size], role: "embedding", tiedTo: null },
      ...linearSlots(PROJECTION, depth * size, hidden),
      vectorSlot(`${NORM}.weight`, size),
    ];
  }

  /** Embeddings for all layers, concatenated: [1, T, depth * size]. */
  rows<T>(pass: LayerPass<T>): T {
    const { hidden, size } = this.config;
    return pass.once("per_layer_rows", () => {
      const { ops } = pass;
      const rows = ops.scale(ops.embedding(pass.weight(TABLE), pass.tokens), size ** 0.5);
      const projected = ops.scale(pass.linear(pass.embedded, PROJECTION), hidden ** -0.5);
      return ops.scale(ops.add(pass.norm(projected, NORM), rows), 2 ** -0.5);
    });
  }
}

/** What a layer adds: norm(project(activation(gate(x)) * row)). */
export class PerLayerInput implements LayerPart {
  readonly module = null;
  readonly table: PerLayerTable;
  readonly layer: number;

  constructor(table: PerLayerTable, layer: number) {
    this.table = table;
    this.layer = layer;
  }

  slots(module: string): WeightSlot[] {
    const { hidden, size } = this.table.config;
    return [
      ...linearSlots(`${module}.per_layer_input_gate`, size, hidden),
      ...linearSlots(`${module}.per_layer_projection`, hidden, size),
      vectorSlot(`${module}.post_per_layer_input_norm.weight`, hidden),
    ];
  }

  scalable(): PartActivations {
    return { readers: [], inner: [] };
  }

  forward<T>(pass: LayerPass<T>, x: T, { module }: Place): T {
    const { size, activation } = this.table.config;
    const gate = pass.linear(x, `${module}.per_layer_input_gate`);
    const row = pass.ops.columns(this.table.rows(pass), this.layer * size, (this.layer + 1) * size);
    const gated = pass.ops.gated(activation, gate, row);
    return pass.norm(pass.linear(gated, `${module}.per_layer_projection`), `${module}.post_per_layer_input_norm`);
  }
}
