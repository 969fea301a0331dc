/** Version of this package: package.json's, which a bundle of an application does not have beside it. */
export const version = "0.1.0";
