/** Questions from a page to its worker. */
import { InvalidArgumentError } from "../errors.ts";
import { type Answer, errorOf, type Port, type Reply, type Request, type RequestBody } from "./protocol.ts";

interface Question {
  take(reply: Reply): void;
  resolve(answer: Answer): void;
  reject(error: unknown): void;
}

interface AskOptions {
  /** Called with each answer that is not the last. */
  take?(reply: Reply): void;
  /** Ends the request; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
}

/** Questions to a port, each with an answer. */
export class Channel {
  readonly #port: Port;
  readonly #questions = new Map<number, Question>();
  #last = 0;
  #failure: Error | null = null;

  constructor(port: Port) {
    this.#port = port;
    port.onmessage = ({ data }) => this.#take(data as Reply);
  }

  /** Resolves with the answer; `take` gets what comes before it. An abort rejects with the signal's reason, once it has ended. */
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

  /** Says something of a question under way, which has no answer of its own. */
  tell(request: Request): void {
    this.#port.postMessage(request);
  }

  /** Ends all questions, those to come, too. */
  fail(error: Error): void {
    this.#failure ??= error;
    for (const { reject } of this.#questions.values()) reject(this.#failure);
    this.#questions.clear();
  }

  /** InvalidArgumentError for functions, symbols and what else cannot be posted. */
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

  /** An error of who gets what comes ends the question, and its work. */
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
