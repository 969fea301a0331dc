/** Measures memory bandwidth, the limit of decode. No operator calls it. */
import { list, size, whole } from "../../declaration.ts";
import { nativeFamily } from "../../family.ts";

/** Reads all bytes of `data` for `rounds` rounds, prefetching `ahead` bytes ahead; 0 for none. */
export const measureRead = nativeFamily("measure_read", { data: list("u8", "bytes"), rounds: whole, ahead: size });
