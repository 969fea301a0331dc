/**
 * Constants that are stacks of packed matrices: kernels read only the first header, so all matrices must be stored alike.
 */
import { HEADER_BYTES } from "../kernels/layout/header.ts";
import { describePacked, formOf, type PackedShape } from "../kernels/layout/packed.ts";
import type { Arguments, TensorSpec } from "./call-arguments.ts";
import type { StoredConstant } from "./operator.ts";

/** Headers that are read at the same time. */
const READ_AT_ONCE = 64;

/** ShapeError unless the `count` matrices of an argument's stack are stored as the first one is. */
export async function checkStack(
  args: Arguments<TensorSpec>,
  argument: string,
  { name, byteLength, read }: StoredConstant,
  { count, shape }: { readonly count: number; readonly shape: PackedShape },
): Promise<void> {
  const length = byteLength / count;
  // A constant that is no whole number of matrices is refused when the call is made ready.
  if (!Number.isInteger(length) || length < HEADER_BYTES) return;
  const fail = (i: number, problem: string) => args.fail(argument, `${name}, matrix ${i} of ${count}: ${problem}`);
  const form = async (i: number) => {
    const header = await read(i * length, HEADER_BYTES);
    try {
      return formOf(describePacked(header, length, shape));
    } catch (error) {
      return fail(i, (error as Error).message);
    }
  };
  const first = await form(0);
  for (let from = 1; from < count; from += READ_AT_ONCE) {
    const size = Math.min(READ_AT_ONCE, count - from);
    const forms = await Promise.all(Array.from({ length: size }, (_, i) => form(from + i)));
    const other = forms.findIndex((found) => found !== first);
    if (other >= 0)
      fail(from + other, `packed weights: expected ${first}, as the first has them, but found ${forms[other]}`);
  }
}
