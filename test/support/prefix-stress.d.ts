/** Starts processes that share a folder of prefixes, and kills them; an error tells what was wrong. */
export function stressPrefixes(options: {
  /** An empty folder, in one for the script of the processes. */
  readonly folder: string;
  readonly kills: number;
  /** How many run at once. */
  readonly processes: number;
  /** Most bytes of the folder. */
  readonly bytes: number;
  /** Positions that attention sees, "0" for all; "-" for a model of recurrent layers alone. */
  readonly window: string;
}): Promise<{ readonly answers: number; readonly found: number; readonly mostBytes: number }>;
