import type { InputItem } from "./schemas/responses.ts";

/** A response that is kept. */
export interface KeptResponse {
  readonly id: string;
  /** Who asked for it. */
  readonly owner: string;
  /** The response that it went on from; null for the first of a conversation. */
  readonly previousId: string | null;
  /** What it was asked, without what was asked before. */
  readonly input: readonly InputItem[];
  /** What it answered. */
  readonly output: readonly InputItem[];
  /** The response as it was given. */
  readonly body: object;
}
