/** Which content a file is of; an error when it is of several, or cut. */
export function contentOf(path: string): number;

/** Starts processes that write a path, kills them, and looks at what stands there all the while. */
export function stressClaims(options: {
  readonly folder: string;
  readonly seconds: number;
  readonly processes: number;
  readonly isNamespaced?: boolean;
}): Promise<{ readonly path: string; readonly kills: number; readonly looks: number; readonly turns: number }>;
