/**
 * ExecuTorch's `kvcache::update_and_attend`, whose keys and values are off the graph: its calls name a layer and the caller
 * keeps the cache. Here a cache is state of the session: `withOffGraphCaches` adds its tensors to the calls of a program.
 */
import { InvalidFileError } from "../../errors.ts";
import { attentionMultiplications } from "../../ops/attention.ts";
import type { Arguments, TensorSpec } from "../../ops/call-arguments.ts";
import { defineOperator, type Operator } from "../../ops/operator.ts";
import { type Instruction, type Method, type Program, STATE_MEMORY, type TensorValue } from "../../program/program.ts";
import { isSameShape } from "../../tensor.ts";
import { type CachedSdpaArgs, cachedSdpaReference } from "../kernels/attention.ts";

const NAME = "kvcache::update_and_attend";
/** Index of the first cache among a call's arguments, after those that ExecuTorch's operator has. */
const CACHES_AT = 7;
/** ExecuTorch's ScalarType of f32. */
const FLOAT = 6;
/** Bytes that the places of state tensors are multiples of. */
const ALIGNMENT = 64;

const sizesOf = (args: Arguments<TensorSpec>, name: string): readonly number[] => {
  const { shape } = args.tensor(name, "f32");
  if (shape.length !== 4 || shape[0] !== 1) args.fail(name, `expected shape [1, heads, T, D] but found [${shape}]`);
  return shape;
};

/**
 * Writes keys and values [1, kvHeads, T, D] to the cells `position` [T, 1] of the caches [1, kvHeads, capacity, D]; each
 * query [1, heads, T, D] sees the cells up to its position (extension/llm/cache/update_and_attend.py of ExecuTorch).
 */
const updateAndAttend = defineOperator<CachedSdpaArgs>({
  schema: `${NAME}.out(Tensor q, Tensor k, Tensor v, Tensor position, int layer_id, float scale, int out_dtype, Tensor(a!) key_cache, Tensor(b!) value_cache, *, Tensor(c!) out) -> Tensor(c!)`,
  kernels: [cachedSdpaReference],
  indices: { argument: "position", limit: (args) => args.tensor("key_cache").shape[2]! },
  shape(args) {
    const [q, k, v] = ["q", "k", "v"].map((name) => sizesOf(args, name)) as [number[], number[], number[]];
    const [, heads, tokens, dim] = q as [number, number, number, number];
    const kvHeads = k[1]!;
    if (heads % kvHeads !== 0 || !isSameShape(k, [1, kvHeads, tokens, dim]))
      args.fail("k", `expected [1, a divisor of ${heads}, ${tokens}, ${dim}] but found [${k}]`);
    if (!isSameShape(v.slice(0, 3), k.slice(0, 3))) args.fail("v", `expected [${k.slice(0, 3)}, D] but found [${v}]`);
    const { shape: position } = args.tensor("position", "i64");
    if (!isSameShape(position, [tokens, 1]))
      args.fail("position", `expected shape [${tokens}, 1] but found [${position}]`);
    if (args.number("out_dtype") !== FLOAT)
      args.fail("out_dtype", `expected f32, ${FLOAT}, but found ${args.number("out_dtype")}`);
    const width = v[3]!;
    return { dtype: "f32", shape: [1, heads, tokens, width] };
  },
  multiplications: (args) => attentionMultiplications(args.tensor("q"), args.tensor("key_cache").shape[2]!),
  prepare: (args) => ({
    ...{ q: args.tensor("q"), k: args.tensor("k"), v: args.tensor("v"), scale: args.number("scale") },
    ...{ keyCache: args.tensor("key_cache"), valueCache: args.tensor("value_cache"), out: args.tensor("out") },
    position: args.tensor("position").data as BigInt64Array,
  }),
});

export const kvcacheOperators: readonly Operator[] = [updateAndAttend];

/** Place of the keys and values of each layer in state memory, and its bytes; methods of a program share the caches. */
interface Caches {
  readonly capacity: number;
  readonly layers: Map<number, readonly [TensorValue, TensorValue]>;
  bytes: number;
}

/** Whether a program calls `kvcache::update_and_attend`. */
export function hasOffGraphCaches({ methods }: Program): boolean {
  return methods.some(({ operators }) => operators.some(({ name }) => name === NAME));
}

/**
 * A program whose calls of `kvcache::update_and_attend` have their caches in state memory, of as many tokens as `lengthsOf` says,
 * which is asked for those alone. Other programs are given back as they are. InvalidFileError for a call whose layer, keys or values
 * are not what the operator takes.
 */
export function withOffGraphCaches(
  program: Program,
  lengthsOf: (program: Program) => { readonly contextLength: number },
): Program {
  if (!hasOffGraphCaches(program)) return program;
  const file = program.file ?? "program";
  const state = Math.max(0, ...program.methods.map(({ memorySizes }) => memorySizes[STATE_MEMORY] ?? 0));
  const caches: Caches = { capacity: lengthsOf(program).contextLength, layers: new Map(), bytes: state };
  const changed = program.methods.map((method) => withCaches(file, method, caches));
  const methods = changed.map((method) => ({
    ...method,
    memorySizes: Array.from({ length: Math.max(3, method.memorySizes.length) }, (_, memory) =>
      memory === STATE_MEMORY ? caches.bytes : (method.memorySizes[memory] ?? 0),
    ),
  }));
  return { ...program, methods };
}

function withCaches(file: string, method: Method, caches: Caches): Method {
  const values = [...method.values];
  const added = new Map<TensorValue, number>();
  const instructions = method.instructions.map((instruction): Instruction => {
    if (instruction.kind !== "kernel" || method.operators[instruction.operator]?.name !== NAME) return instruction;
    const tensors = cachesOf(method, instruction.args, caches);
    if (!tensors)
      throw new InvalidFileError(
        file,
        `method ${method.name}: ${NAME}: expected keys and values [1, heads, T, D] of one size a layer, and a layer that is a number`,
      );
    const indices = tensors.map((tensor) => {
      const index = added.get(tensor) ?? values.push(tensor) - 1;
      added.set(tensor, index);
      return index;
    });
    return { ...instruction, args: instruction.args.toSpliced(CACHES_AT, 0, ...indices) };
  });
  return { ...method, values, instructions };
}

/** Caches of the layer of a call, made at its first one; null where the call is not as it must be. */
function cachesOf({ values }: Method, args: readonly number[], caches: Caches) {
  const [, k, v, , layer] = args.map((index) => values[index]);
  if (layer?.kind !== "int" || k?.kind !== "tensor" || v?.kind !== "tensor") return null;
  const kept = caches.layers.get(layer.value);
  const tensors =
    kept ??
    ([
      cacheOf(`keys of layer ${layer.value}`, k, caches),
      cacheOf(`values of layer ${layer.value}`, v, caches),
    ] as const);
  caches.layers.set(layer.value, tensors);
  const fits = [k, v].every(
    ({ sizes }, i) => sizes.length === 4 && isSameShape(sizes.with(2, caches.capacity), tensors[i]!.sizes),
  );
  return fits ? tensors : null;
}

function cacheOf(name: string, like: TensorValue, caches: Caches): TensorValue {
  const sizes = like.sizes.with(2, caches.capacity);
  const offset = Math.ceil(caches.bytes / ALIGNMENT) * ALIGNMENT;
  caches.bytes = offset + 4 * sizes.reduce((a, b) => a * b, 1);
  const dimOrder = [0, 1, 2, 3];
  return {
    ...{ kind: "tensor", dtype: "f32", sizes, dimOrder, dynamism: "static", constant: null, name },
    allocation: { memoryId: STATE_MEMORY, offset },
  };
}
