/** The hub's address and its cache, from the same environment variables as Python's huggingface_hub. */

import { homedir } from "node:os";
import { join } from "node:path";
import { checkFields } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import { readTextIfAny } from "../node-file.ts";

/** Address of the hub, folder of its cache, and access token. */
export interface HubSettings {
  /** Address of the hub, without a slash at the end. */
  readonly endpoint: string;
  /** Folder of the cache that Python's huggingface_hub shares. */
  readonly cache: string;
  /** Access token, null without one. */
  readonly token: string | null;
  /** Whether to use only the cache and download nothing. */
  readonly offline: boolean;
}

type Environment = Readonly<Record<string, string | undefined>>;

const DEFAULT_ENDPOINT = "https://huggingface.co";
const isOn = (value: string | undefined) => /^(1|on|yes|true)$/i.test(value ?? "");

/** Settings from HF_ENDPOINT, HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_HUB_OFFLINE and their older names. */
export async function hubSettings(environment: Environment = process.env): Promise<HubSettings> {
  checkFields("environment", environment, [], "variables by name");
  const { XDG_CACHE_HOME, HF_HOME, HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_ENDPOINT, HF_HUB_OFFLINE } = environment;
  const home = HF_HOME || join(XDG_CACHE_HOME || join(homedir(), ".cache"), "huggingface");
  const endpoint = (HF_ENDPOINT || DEFAULT_ENDPOINT).replace(/\/+$/, "");
  if (!URL.canParse(endpoint)) throw new InvalidArgumentError(`HF_ENDPOINT: expected a URL but found "${endpoint}"`);
  const given = environment.HF_TOKEN || environment.HUGGING_FACE_HUB_TOKEN;
  const path = environment.HF_TOKEN_PATH || join(home, "token");
  const token = given || (await readTextIfAny(path)) || "";
  return {
    endpoint,
    cache: HF_HUB_CACHE || HUGGINGFACE_HUB_CACHE || join(home, "hub"),
    token: token.trim() || null,
    offline: isOn(HF_HUB_OFFLINE) || isOn(environment.TRANSFORMERS_OFFLINE),
  };
}

/** A repository and revision: "org/name", "org/name@v1". */
export interface RepositoryName {
  readonly repository: string;
  readonly revision: string;
}

/** Parses "org/name[@revision]", with or without "hf:" before it. InvalidArgumentError for anything else. */
export function parseRepository(text: string): RepositoryName {
  const match = /^(?:hf:)?((?:[\w.-]+\/)?[\w.-]+)(?:@([\w./-]+))?$/.exec(text);
  const parts = [...(match?.[1]?.split("/") ?? []), ...(match?.[2]?.split("/") ?? [])];
  if (!match || parts.some((part) => /^\.*$/.test(part)))
    throw new InvalidArgumentError(`repository "${text}": expected org/name or org/name@revision`);
  return { repository: match[1]!, revision: match[2] ?? "main" };
}
