/** Constants that are several packed matrices, of which kernels read the first one's header alone: all must be stored alike. */
import { InvalidFileError } from "../errors.ts";
import { HEADER_BYTES } from "../kernels/layout/header.ts";
import { describePacked, formOf } from "../kernels/layout/packed.ts";
import type { PackedStack } from "../ops/operator.ts";
import type { OperatorRegistry } from "../ops/operator-registry.ts";
import { qualifiedName } from "../ops/schema.ts";
import type { Method, Program, TensorValue } from "../program/program.ts";
import { tensorBytes } from "../program/verify.ts";
import { plannedArguments } from "./call-values.ts";

/** Headers that are read side by side. */
const READ_AT_ONCE = 64;

/** A stack that a call reads, and the constant that it is. */
interface ConstantStack extends PackedStack {
  readonly constant: number;
  readonly byteLength: number;
  readonly name: string;
}

/**
 * InvalidFileError where matrices of a stack are stored in different ways. isMapped: whether constants may be of a mapped
 * file, whose headers are read beside the mapping, so that no more of it comes into memory.
 */
export async function checkStacks(
  program: Program,
  registry: OperatorRegistry,
  constants: readonly Uint8Array[],
  isMapped: boolean,
): Promise<void> {
  const checked = new Set<string>();
  for (const stack of program.methods.flatMap((method) => stacksOf(method, registry))) {
    const key = JSON.stringify([stack.constant, stack.count, stack.shape]);
    if (!checked.has(key)) await checkStack(program, stack, constants[stack.constant]!, isMapped);
    checked.add(key);
  }
}

function stacksOf(method: Method, registry: OperatorRegistry): ConstantStack[] {
  return method.instructions.flatMap((step) => {
    if (step.kind !== "kernel") return [];
    const operator = registry.find(qualifiedName(method.operators[step.operator]!));
    if (!operator?.stack) return [];
    const stack = operator.stack(plannedArguments(method, step.args, operator.schema));
    const place = operator.schema.args.findIndex(({ name }) => name === stack.argument);
    const value = method.values[step.args[place]!] as TensorValue;
    const { constant } = value;
    if (constant === null) return [];
    return { ...stack, constant, byteLength: tensorBytes(value), name: value.name ?? `constant ${constant}` };
  });
}

async function checkStack(program: Program, stack: ConstantStack, bytes: Uint8Array, isMapped: boolean): Promise<void> {
  const { count, shape, name, constant } = stack;
  const length = stack.byteLength / count;
  // What is no whole number of matrices is refused where the call is made ready.
  if (!Number.isInteger(length) || length < HEADER_BYTES) return;
  const { data } = program.constants[constant]!;
  const fail = (i: number, problem: string): never => {
    throw new InvalidFileError(program.file ?? "program", `${name}, matrix ${i} of ${count}: ${problem}`);
  };
  const header = async (i: number) =>
    isMapped && data.readRange
      ? data.readRange(i * length, HEADER_BYTES)
      : bytes.subarray(i * length, i * length + HEADER_BYTES);
  const form = async (i: number) => {
    const read = await header(i);
    try {
      return formOf(describePacked(read, length, shape));
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
