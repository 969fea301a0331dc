/** Kernels of attention, rotary embedding and pooling. Best first: the reference fits everything and is last. */
import { family, plainFamily } from "../../family.ts";
import {
  attendPackedFields,
  attentionFields,
  ropeAnglesFields,
  ropeFields,
  ropeSequenceAttentionFields,
  sequenceAttentionFields,
} from "./fields.ts";
import { attendPackedReference, poolPackedReference } from "./packed-reference.ts";
import { attentionReference, updateAndAttendReference } from "./reference.ts";
import { ropeUpdateAndAttendReference } from "./rope-attention-reference.ts";
import { ropeAnglesReference, ropeReference } from "./rope-reference.ts";
import {
  attentionRelaxedWasm,
  attentionWasm,
  ropeUpdateAndAttendRelaxedWasm,
  ropeUpdateAndAttendWasm,
  updateAndAttendRelaxedWasm,
  updateAndAttendWasm,
} from "./wasm/attention.ts";
import { attendPackedWasm } from "./wasm/packed.ts";
import { ropeAnglesWasm, ropeWasm } from "./wasm/rope.ts";

export const ropeAngles = family("rope_angles", ropeAnglesFields, {
  wasm: [ropeAnglesWasm],
  reference: ropeAnglesReference,
});
export const rope = family("rope", ropeFields, { wasm: [ropeWasm], reference: ropeReference });
export const attention = family("attention", attentionFields, {
  wasm: [attentionRelaxedWasm, attentionWasm],
  reference: attentionReference,
});
/** Stores keys and values in the KV cache, then attends over the pages of several sequences. */
export const updateAndAttend = family("update_and_attend", sequenceAttentionFields, {
  wasm: [updateAndAttendRelaxedWasm, updateAndAttendWasm],
  reference: updateAndAttendReference,
});
export const ropeUpdateAndAttend = family("rope_update_and_attend", ropeSequenceAttentionFields, {
  wasm: [ropeUpdateAndAttendRelaxedWasm, ropeUpdateAndAttendWasm],
  reference: ropeUpdateAndAttendReference,
});
/** Attention of packed sequences, without a KV cache. */
export const attendPacked = family("attend_packed", attendPackedFields, {
  wasm: [attendPackedWasm],
  reference: attendPackedReference,
});
export const poolPacked = plainFamily(poolPackedReference);
