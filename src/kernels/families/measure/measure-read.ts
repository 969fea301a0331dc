/** How fast memory can be read: the limit that decoding runs against. No operator calls it. */
import { list, size, whole } from "../../declaration.ts";
import { nativeFamily } from "../../family.ts";

/** Reads all bytes some rounds, and prefetches so many bytes ahead; 0 for none. */
export const measureRead = nativeFamily("measure_read", { data: list("u8", "bytes"), rounds: whole, ahead: size });
