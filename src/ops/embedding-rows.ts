/** Lookup in a part of a table, whose other rows other calls look up. A module of its own, which bundles without it drop. */
import { embeddingShared } from "../kernels/families/index.ts";
import type { Indices } from "../kernels/records.ts";
import { packedQuery } from "../kernels/select.ts";
import { rowBytes, rowsShape } from "./embedding.ts";
import { openArgument, packedShape } from "./linear.ts";
import { defineOperator } from "./operator.ts";

/**
 * Looks up rows of a table of `rows` rows, of which the packed weights are n rows from `first` on; zeros for others, so that a
 * sum over all parts of the table is its rows.
 */
export const embeddingRowsOperator = defineOperator({
  schema:
    "lowbit::shared_embedding_rows.out(Tensor packed_weights, int group_size, int n, int k, int first, int rows, Tensor indices, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: embeddingShared,
  indices: { argument: "indices", limit: (args) => args.number("rows") },
  tables: ["packed_weights"],
  bytes: (args) => rowBytes(args, ["packed_weights"], args.number("rows")),
  shape(args) {
    args.tensor("packed_weights", "u8", "i8");
    const { n, k } = packedShape(args);
    const [first, rows] = [args.integer("first", 0), args.integer("rows", 1)];
    if (first + n > rows) args.fail("first", `expected 0..${rows - n} for ${n} of ${rows} rows but found ${first}`);
    return rowsShape(args, k);
  },
  query: (args) => packedQuery(openArgument(args, "packed_weights", null), 1),
  prepare: (args) => ({
    weights: openArgument(args, "packed_weights", null),
    indices: args.tensor("indices").data as Indices,
    y: args.tensor("out").data as Float32Array,
    ...{ first: args.number("first"), rows: args.number("rows") },
  }),
});
