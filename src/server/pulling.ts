/** Downloads models at a client's request, and reports progress. */
import { createHash } from "node:crypto";
import { deferred } from "../deferred.ts";
import { InvalidArgumentError, LowbitError } from "../errors.ts";
import { ApiError } from "./errors.ts";
import type { Serving } from "./serving.ts";

/** Progress of a download, in Ollama's words where there are some. */
export interface PullStatus {
  readonly status: string;
  /** Clients show a progress bar for each digest. */
  readonly digest?: string;
  readonly total?: number;
  readonly completed?: number;
}

const SHOWN_DIGITS = 12;
/** Milliseconds between two reports. */
const REPORT_MS = 100;

/**
 * Downloads a model and adds it to the server by its name; the last status is "success". ApiError 400 for an invalid name.
 */
export async function* pulled(serving: Serving, name: string, signal: AbortSignal): AsyncGenerator<PullStatus> {
  const { pool, pull } = serving;
  yield { status: "pulling manifest" };
  if (!pool.has(name)) {
    if (!pull)
      throw new ApiError(400, "pull model manifest: this server offers the models that it was given and no others", {
        code: "no_pull",
      });
    let latest: PullStatus | null = null;
    let wake = deferred();
    const source = pull(name, {
      signal,
      onProgress(what, done, total) {
        latest = statusOf(name, what, done, total);
        wake.resolve();
      },
    });
    let isOver = false;
    const ended = () => {
      isOver = true;
      wake.resolve();
    };
    source.then(ended, ended);
    while (!isOver) {
      await wake.promise;
      wake = deferred();
      if (latest) yield latest;
      latest = null;
      if (!isOver) await Promise.race([source.catch(() => {}), new Promise((next) => setTimeout(next, REPORT_MS))]);
    }
    if (latest) yield latest;
    const found = await source.catch((cause) => {
      throw failure(name, cause);
    });
    // Another request may have added it meanwhile.
    if (!pool.has(name)) pool.add({ ...found, name });
  }
  yield { status: "success" };
}

function statusOf(name: string, what: "downloading" | "quantizing", completed: number, total: number): PullStatus {
  const digest = createHash("sha256").update(`${what} ${name}`).digest("hex");
  const doing = what === "downloading" ? "pulling" : "quantizing";
  return { status: `${doing} ${digest.slice(0, SHOWN_DIGITS)}`, digest: `sha256:${digest}`, total, completed };
}

/** The error for the client, without addresses and folders of downloads, which only the log shows. */
function failure(name: string, cause: unknown): unknown {
  const isTold = cause instanceof ApiError || cause instanceof InvalidArgumentError;
  if (isTold || !(cause instanceof LowbitError)) return cause;
  return new ApiError(500, `pull model manifest: ${name} cannot be had; the server's log says why`, { cause });
}
