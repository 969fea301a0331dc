/** Code that kernels of recurrent layers share: the states of a step's runs, and rows that belong to no run. */
import type { SequenceTable, StatePart } from "../../../sequence-table.ts";
import type { Body, Expr, Local } from "../../../wasm/assembler/expression.ts";
import { i32, ptr } from "../../../wasm/assembler/instructions.ts";
import type { Scope } from "../../../wasm/assembler/module.ts";
import { forLanes } from "../../../wasm/generate/lanes.ts";
import { elementAt, forRange } from "../../../wasm/generate/loops.ts";
import { forRuns, type Run } from "../../../wasm/generate/runs.ts";
import type { VectorConstants } from "../../../wasm/generate/weight-fields.ts";
import type { Placement } from "../../../wasm/kernel-code.ts";

/** Argument block fields for states. */
export const stateFields = {
  rows: "i32",
  runs: "ptr",
  /** Arrays of 64-bit state addresses by slot: to read, and to write. */
  states: "ptr",
  nextStates: "ptr",
  /** Byte offset of the call's own part of a state. */
  stateOffset: "ptr",
} as const;

type StateFields = { readonly [N in keyof typeof stateFields]: Local<(typeof stateFields)[N]> };

/** Values of `stateFields`. */
export function stateValues(
  { table, state, rows }: { readonly table: SequenceTable; readonly state: StatePart; readonly rows: number },
  place: Placement,
): Readonly<Record<keyof typeof stateFields, number>> {
  const { now, next } = place.states(table, rows);
  return { rows, runs: place.read(table.runs), states: now, nextStates: next, stateOffset: state.offset };
}

const ADDRESS_BYTES = 8;

/** Range of result columns that a tile computes for all rows. */
export interface ResultColumns {
  /** Address of the range in the first row. */
  readonly y: Expr<"ptr">;
  readonly rowBytes: Expr<"ptr">;
  readonly count: Expr<"i32">;
}

/**
 * Runs `visit` for each run, with the addresses of the call's part of its state and next state; results of other rows become
 * NaN.
 */
export function forStates(
  { scope, constants }: { readonly scope: Scope; readonly constants: VectorConstants },
  fields: StateFields,
  { y, rowBytes, count }: ResultColumns,
  visit: (run: Run, now: Local<"ptr">, next: Local<"ptr">) => Body,
): Body {
  const [now, next, to] = ["state", "next_state", "nan"].map((name) => scope.local("ptr", name)) as Local<"ptr">[] &
    Record<0 | 1 | 2, Local<"ptr">>;
  const known = scope.local("i32", "known_rows");
  const fillTo = (end: Expr<"i32">): Body =>
    forRange(known, known, end, [
      to.set(elementAt(y, known, rowBytes)),
      forLanes({ scope, constants, count, pointers: [[to]] }, (lanes) => [
        lanes.store(to, constants.floats(Number.NaN)),
      ]),
    ]);
  const find = (target: Local<"ptr">, addresses: Local<"ptr">, { slot }: Run) =>
    target.set(ptr.add(ptr.load(elementAt(addresses, slot, ADDRESS_BYTES)), fields.stateOffset));
  return [
    forRuns(scope, fields, (run) => [
      fillTo(run.first),
      known.set(i32.add(run.first, run.count)),
      find(now, fields.states, run),
      find(next, fields.nextStates, run),
      visit(run, now, next),
    ]),
    fillTo(fields.rows),
  ];
}
