/** The fingerprint of interface.ts and families.ts, which an addon is built with. Written by `npm run families`. */
export const NATIVE_ABI = "a6aa82d4";
