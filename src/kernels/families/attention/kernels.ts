/** Kernels of attention, rotary embedding, and rows of texts. Best first: the reference fits everything and is last. */
import { family, plainFamily } from "../../family.ts";
import {
  attendTextsFields,
  attentionFields,
  ropeAnglesFields,
  ropeFields,
  ropeSequenceAttentionFields,
  sequenceAttentionFields,
} from "./fields.ts";
import { attentionReference, updateAndAttendReference } from "./reference.ts";
import { ropeUpdateAndAttendReference } from "./rope-attention-reference.ts";
import { ropeAnglesReference, ropeReference } from "./rope-reference.ts";
import { attendTextsReference, poolTextsReference } from "./texts-reference.ts";
import {
  attentionRelaxedWasm,
  attentionWasm,
  ropeUpdateAndAttendRelaxedWasm,
  ropeUpdateAndAttendWasm,
  updateAndAttendRelaxedWasm,
  updateAndAttendWasm,
} from "./wasm/attention.ts";
import { ropeAnglesWasm, ropeWasm } from "./wasm/rope.ts";
import { attendTextsWasm } from "./wasm/texts.ts";

export const ropeAngles = family("rope_angles", ropeAnglesFields, {
  wasm: [ropeAnglesWasm],
  reference: ropeAnglesReference,
});
export const rope = family("rope", ropeFields, { wasm: [ropeWasm], reference: ropeReference });
export const attention = family("attention", attentionFields, {
  wasm: [attentionRelaxedWasm, attentionWasm],
  reference: attentionReference,
});
/** Over the pages of several sequences. */
export const updateAndAttend = family("update_and_attend", sequenceAttentionFields, {
  wasm: [updateAndAttendRelaxedWasm, updateAndAttendWasm],
  reference: updateAndAttendReference,
});
export const ropeUpdateAndAttend = family("rope_update_and_attend", ropeSequenceAttentionFields, {
  wasm: [ropeUpdateAndAttendRelaxedWasm, ropeUpdateAndAttendWasm],
  reference: ropeUpdateAndAttendReference,
});
/** Over rows that are several texts. */
export const attendTexts = family("attend_texts", attendTextsFields, {
  wasm: [attendTextsWasm],
  reference: attendTextsReference,
});
export const poolTexts = plainFamily(poolTextsReference);
