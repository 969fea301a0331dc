// What the core imports of this package, for its effects alone, as the core's build sees it: the package is built after the core.
export {};
