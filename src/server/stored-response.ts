import type { InputItem } from "./schemas/responses.ts";

/** A response of /v1/responses that is stored. */
export interface StoredResponse {
  readonly id: string;
  /** Name of the key that asked for it. */
  readonly owner: string;
  /** Id of the response that it continues; null for the first of a conversation. */
  readonly previousId: string | null;
  /** Input items of this request, without those of earlier ones. */
  readonly input: readonly InputItem[];
  /** Output items. */
  readonly output: readonly InputItem[];
  /** The response's JSON as it was sent. */
  readonly body: object;
}
