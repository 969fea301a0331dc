/** Metrics of a server for Prometheus. */
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { Admission } from "./admission.ts";
import type { ModelPool } from "./models.ts";

/** Upper bounds of histogram buckets in seconds: from one token of a small model to a long prompt of a large one. */
const FIRST_TOKEN_BUCKETS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];
const TOKEN_BUCKETS = [0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.2, 2.5, 5];
const REQUEST_BUCKETS = [0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];

export class Metrics {
  readonly #registry = new Registry();
  /** Requests by endpoint and status. */
  readonly requests: Counter<"endpoint" | "status">;
  readonly requestSeconds: Histogram<"endpoint">;
  readonly promptTokens: Counter<"model">;
  readonly cachedTokens: Counter<"model">;
  readonly generatedTokens: Counter<"model">;
  readonly draftedTokens: Counter<"model">;
  readonly acceptedTokens: Counter<"model">;
  readonly firstTokenSeconds: Histogram<"model">;
  readonly tokenSeconds: Histogram<"model">;

  constructor(admission: Admission, pool: ModelPool) {
    const registers = [this.#registry];
    this.requests = new Counter({
      name: "lowbit_requests_total",
      help: "Requests that have ended, by endpoint and status of HTTP; 499 for clients that left.",
      labelNames: ["endpoint", "status"],
      registers,
    });
    this.requestSeconds = new Histogram({
      name: "lowbit_request_seconds",
      help: "Time of requests, from their arrival to the end of the answer.",
      labelNames: ["endpoint"],
      buckets: REQUEST_BUCKETS,
      registers,
    });
    const counter = (name: string, help: string) => new Counter({ name, help, labelNames: ["model"], registers });
    this.promptTokens = counter("lowbit_prompt_tokens_total", "Tokens of prompts.");
    this.cachedTokens = counter(
      "lowbit_cached_prompt_tokens_total",
      "Tokens of prompts whose keys and values were there already.",
    );
    this.generatedTokens = counter("lowbit_generated_tokens_total", "Tokens generated.");
    this.draftedTokens = counter("lowbit_drafted_tokens_total", "Tokens computed before they were drawn.");
    this.acceptedTokens = counter("lowbit_accepted_tokens_total", "Drafted tokens that were drawn.");
    const seconds = (name: string, help: string, buckets: number[]) =>
      new Histogram({ name, help, labelNames: ["model"], buckets, registers });
    this.firstTokenSeconds = seconds(
      "lowbit_first_token_seconds",
      "Time from the arrival of a request to the first text of its answer.",
      FIRST_TOKEN_BUCKETS,
    );
    this.tokenSeconds = seconds("lowbit_token_seconds", "Time between two pieces of text of an answer.", TOKEN_BUCKETS);
    this.#addGauges(admission, pool);
  }

  /** Adds gauges, which are read when the metrics are requested. */
  #addGauges(admission: Admission, pool: ModelPool): void {
    const registers = [this.#registry];
    const gauge = (name: string, help: string, read: () => number) =>
      new Gauge({
        name,
        help,
        registers,
        collect() {
          this.set(read());
        },
      });
    gauge("lowbit_requests_running", "Texts that are generated now.", () => admission.running);
    gauge("lowbit_requests_waiting", "Requests that wait for their turn.", () => admission.waiting);
    gauge("lowbit_memory_bytes", "Resident memory of the process.", () => process.memoryUsage.rss());
    new Gauge({
      name: "lowbit_model_loaded",
      help: "1 for a model that is loaded, 0 for one that is away or being loaded.",
      labelNames: ["model"],
      registers,
      collect() {
        for (const { name, state } of pool.models) this.set({ model: name }, state === "loaded" ? 1 : 0);
      },
    });
    new Gauge({
      name: "lowbit_cache_usage_ratio",
      help: "Part of a model's memory for keys and values that is in use.",
      labelNames: ["model"],
      registers,
      collect() {
        this.reset();
        for (const { name, model } of pool.models) {
          const store = model?.program.sequenceStatistics;
          if (store) this.set({ model: name }, store.usedBytes / store.limitBytes);
        }
      },
    });
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  text(): Promise<string> {
    return this.#registry.metrics();
  }
}
