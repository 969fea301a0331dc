/** Version of this package, as in package.json, which bundled applications do not have. */
export const version = "0.1.0";
