/** Kernels of attention, rotary embedding, and rows of texts. Best first: the reference fits everything and is last. */
import { listed } from "../../family.ts";
import * as native from "../../native/families.ts";
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

export const ropeAngles = listed("rope_angles", native.ropeAngles, [ropeAnglesWasm, ropeAnglesReference]);
export const rope = listed("rope", native.rope, [ropeWasm, ropeReference]);
export const attention = listed("attention", native.attention, [
  attentionRelaxedWasm,
  attentionWasm,
  attentionReference,
]);
/** Over the pages of several sequences. */
export const updateAndAttend = listed("update_and_attend", native.updateAndAttend, [
  updateAndAttendRelaxedWasm,
  updateAndAttendWasm,
  updateAndAttendReference,
]);
export const ropeUpdateAndAttend = listed("rope_update_and_attend", native.ropeUpdateAndAttend, [
  ropeUpdateAndAttendRelaxedWasm,
  ropeUpdateAndAttendWasm,
  ropeUpdateAndAttendReference,
]);
/** Over rows that are several texts. */
export const attendTexts = listed("attend_texts", native.attendTexts, [attendTextsWasm, attendTextsReference]);
export const poolTexts = [poolTextsReference];
