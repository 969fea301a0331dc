export interface StressOptions {
  /** An empty folder, in one for the script of the processes. */
  readonly folder: string;
  readonly kills: number;
  /** How many run at once. */
  readonly processes: number;
  /** Most bytes of the folder. */
  readonly bytes: number;
  /** What the model is made of. */
  readonly layers: { readonly window: number | null; readonly isRecurrent?: boolean };
}

/** Starts processes that share a folder of prefixes, and kills them; an error tells what was wrong. */
export function stressPrefixes(
  options: StressOptions,
): Promise<{ readonly answers: number; readonly found: number; readonly mostBytes: number }>;
