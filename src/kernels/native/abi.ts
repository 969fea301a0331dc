/** The fingerprint of interface.ts and families.ts: scripts/check-structure.js keeps it true, the addon is built with it. */
export const NATIVE_ABI = "63ecf5d5";
