/** The fingerprint of interface.ts and of the order of arguments, which an addon is built with. Written by `npm run families`. */
export const NATIVE_ABI = "4a9bb88f";
