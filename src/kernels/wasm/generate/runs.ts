/** Reads runs of rows from a sequence table. */
import { type Body, type Expr, type Local, select, when, whileDo } from "../assembler/expression.ts";
import { i32, int, ptr, size } from "../assembler/instructions.ts";
import type { Scope } from "../assembler/module.ts";
import { advance } from "./loops.ts";

const RUN_BYTES = 16;

/** Arguments that a function needs to read runs: the number of rows, and the address of the runs. */
export interface RunFields {
  readonly rows: Local<"i32">;
  readonly runs: Local<"ptr">;
}

/** A run: consecutive rows that are consecutive positions of one sequence. */
export class Run {
  readonly first: Local<"i32">;
  readonly count: Local<"i32">;
  readonly position: Local<"i32">;
  readonly slot: Local<"i32">;

  constructor(scope: Scope) {
    this.first = scope.local("i32", "run_first");
    this.count = scope.local("i32", "run_rows");
    this.position = scope.local("i32", "run_position");
    this.slot = scope.local("i32", "run_slot");
  }

  /** Reads the run at an address; it gets no rows if it exceeds the rows of the call. */
  load(at: Expr<"ptr">, { rows }: RunFields): Body {
    const [first, count, position, slot] = [0, 4, 8, 12].map((offset) => i32.load(at, offset)) as [
      Expr<"i32">,
      Expr<"i32">,
      Expr<"i32">,
      Expr<"i32">,
    ];
    const end = i32.add(this.first, this.count);
    return [
      this.first.set(first),
      this.count.set(count),
      this.position.set(position),
      this.slot.set(slot),
      this.count.set(select(i32.gt_u(end, rows), int(0), this.count)),
    ];
  }
}

/** Runs `visit` for each run with rows in the call, in order; `at` is the address of its numbers. */
export function forRuns(scope: Scope, fields: RunFields, visit: (run: Run, at: Local<"ptr">) => Body): Body {
  const run = new Run(scope);
  const left = scope.local("i32", "runs_left");
  const at = scope.local("ptr", "run_at");
  return [
    left.set(i32.load(fields.runs)),
    at.set(ptr.add(fields.runs, size(4))),
    whileDo(left, [
      run.load(at, fields),
      when(i32.gt_s(run.count, int(0)), visit(run, at)),
      advance(at, RUN_BYTES),
      left.set(i32.sub(left, int(1))),
    ]),
  ];
}
