/** Sample calls of the kernels of attention over pages, for tests and for printing their code. */
import { bytesOf } from "../../../tensor.ts";
import { floats } from "../../cases.ts";
import type { PagedCache } from "../../sequence-table.ts";
import { callOf, type SampleCall, tableOfRun } from "../sample-call.ts";
import type { SequenceAttentionArgs } from "./fields.ts";
import { updateAndAttendReference } from "./reference.ts";
import * as joined from "./rope-attention-reference.ts";
import * as attention from "./wasm/attention.ts";

const DIM = 64;
const HEADS = 4;
const KV_HEADS = 2;
const CAPACITY = 48;
/** Small floats, or bit patterns of halves near 0.5. */
const caches = {
  f32: (length: number) => floats(length, 5),
  f16: (length: number) => Uint16Array.from({ length }, (_, i) => 0x3800 + ((i * 7919) % 512)),
};

/** Arguments that all forms of attention have, for `tokens` rows. */
const attentionArgs = (tokens: number) => ({
  ...{ heads: HEADS, kvHeads: KV_HEADS, headDim: DIM, scale: DIM ** -0.5, window: 0, softcap: 0 },
  y: new Float32Array(tokens * HEADS * DIM),
});

const PAGE_POSITIONS = 16;

/** One sequence in pages of keys and values; its new tokens follow 20 others. */
function sequence(rows: number, type: keyof typeof caches): Pick<SequenceAttentionArgs, "table" | "pages"> {
  const pages = Array.from({ length: CAPACITY / PAGE_POSITIONS }, () =>
    bytesOf(caches[type](2 * PAGE_POSITIONS * KV_HEADS * DIM)),
  );
  const cache: PagedCache = {
    ...{ type, kvHeads: KV_HEADS, headDim: DIM, window: 0, pagePositions: PAGE_POSITIONS, pagesMax: pages.length },
    pages: new BigUint64Array(pages.length),
    page: (_, index) => pages[index]!,
  };
  const layerPages = { cache, offset: 0 };
  return { table: { ...tableOfRun(rows, 0), layerPages: () => layerPages }, pages: layerPages };
}

/** Calls with 1 token, and with 17, which are attended several queries at a time. */
export function attentionCalls(): SampleCall[] {
  const kinds = (["f32", "f16"] as const).flatMap((type) => [1, 17].map((tokens) => ({ type, tokens })));
  return kinds.flatMap(({ type, tokens }) => {
    const what = `${tokens} tokens, cache of ${type}`;
    const kv = tokens * KV_HEADS * DIM;
    const given = () => ({ q: floats(tokens * HEADS * DIM), k: floats(kv, 2), v: floats(kv, 3) });
    const sinks = tokens > 1 ? floats(HEADS, 5) : null;
    const paged = () => ({ ...attentionArgs(tokens), rows: tokens, sinks, ...sequence(tokens, type) });
    const makePaged = () => ({ ...paged(), ...given() });
    const qkv = () => floats(tokens * (HEADS + 2 * KV_HEADS) * DIM);
    const makeRopePaged = () => ({ ...paged(), qkv: qkv(), angles: floats(tokens * DIM, 4), half: DIM / 2 });
    return [
      ...[attention.updateAndAttendRelaxedWasm, attention.updateAndAttendWasm].map((row) =>
        callOf(row, updateAndAttendReference, makePaged, ({ y }) => y, what),
      ),
      ...[attention.ropeUpdateAndAttendRelaxedWasm, attention.ropeUpdateAndAttendWasm].map((row) =>
        callOf(row, joined.ropeUpdateAndAttendReference, makeRopePaged, ({ y }) => y, what),
      ),
    ];
  });
}
