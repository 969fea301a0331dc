/** Requests from a page to its worker. */
import { InvalidArgumentError } from "../errors.ts";
import { type Answer, errorOf, type Port, type Reply, type Request, type RequestBody } from "./protocol.ts";

interface Question {
  take(reply: Reply): void;
  resolve(answer: Answer): void;
  reject(error: unknown): void;
}

interface AskOptions {
  /** Called with each reply before the last. */
  take?(reply: Reply): void;
  /** Aborts the request, which throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Sends requests to a port and matches replies to them. */
export class Channel {
  readonly #port: Port;
  readonly #questions = new Map<number, Question>();
  #last = 0;
  #failure: Error | null = null;

  constructor(port: Port) {
    this.#port = port;
    port.onmessage = ({ data }) => this.#take(data as Reply);
  }

  /**
   * Sends a request and resolves with its last reply; `take` gets the replies before. An abort rejects with the signal's reason
   * once the worker has ended the request.
   */
  ask(body: RequestBody, { take = () => {}, signal }: AskOptions = {}): Promise<Answer> {
    const id = ++this.#last;
    const onAbort = () => this.tell({ kind: "abort", id });
    return new Promise<Answer>((resolve, reject) => {
      if (this.#failure) throw this.#failure;
      signal?.throwIfAborted();
      this.#questions.set(id, { take, resolve, reject });
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#post({ ...body, id });
    })
      .catch((error) => {
        throw signal?.aborted ? signal.reason : error;
      })
      .finally(() => signal?.removeEventListener("abort", onAbort));
  }

  /** Sends a message about a running request, which has no reply of its own. */
  tell(request: Request): void {
    this.#port.postMessage(request);
  }

  /** Rejects all requests, including later ones. */
  fail(error: Error): void {
    this.#failure ??= error;
    for (const { reject } of this.#questions.values()) reject(this.#failure);
    this.#questions.clear();
  }

  /** Posts a request. InvalidArgumentError for functions, symbols and other values that cannot be posted. */
  #post(request: Request): void {
    try {
      this.#port.postMessage(request);
    } catch (cause) {
      this.#questions.delete(request.id);
      if ((cause as Error).name !== "DataCloneError") throw cause;
      const message = `${request.kind}: expected what can be posted to a worker but found what cannot`;
      throw new InvalidArgumentError(`${message}: ${(cause as Error).message}`, { cause });
    }
  }

  #take(reply: Reply): void {
    const question = this.#questions.get(reply.id);
    if (!question) return;
    if (reply.kind === "end" || reply.kind === "error") this.#questions.delete(reply.id);
    if (reply.kind === "end") question.resolve(reply.value);
    else if (reply.kind === "error") question.reject(errorOf(reply.error));
    else this.#give(question, reply);
  }

  /** Passes a reply to the caller. If the caller throws, the request is rejected and aborted. */
  #give(question: Question, reply: Reply): void {
    try {
      question.take(reply);
    } catch (error) {
      this.#questions.delete(reply.id);
      this.tell({ kind: "abort", id: reply.id });
      question.reject(error);
    }
  }
}
