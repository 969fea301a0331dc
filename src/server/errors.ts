/** Errors of requests, and the form in which each API reports them. */
import {
  ContextLengthError,
  InvalidArgumentError,
  InvalidFileError,
  LimitError,
  LowbitError,
  UnsupportedError,
} from "../errors.ts";

/** HTTP statuses of failed requests. */
export type ErrorStatus = 400 | 401 | 403 | 404 | 405 | 408 | 413 | 415 | 417 | 429 | 431 | 499 | 500 | 503;

/** An error of a request, with the status of its response. */
export class ApiError extends LowbitError {
  readonly status: ErrorStatus;
  /** Code by which OpenAI's clients tell errors apart; null where the status suffices. */
  readonly code: string | null;
  /** The field of the request that is wrong; null for none. */
  readonly param: string | null;
  /** Seconds after which to try again; null where that would not help. */
  readonly retryAfter: number | null;

  constructor(
    status: ErrorStatus,
    message: string,
    details: { code?: string; param?: string; retryAfter?: number; cause?: unknown } = {},
  ) {
    super(message, { cause: details.cause });
    this.status = status;
    this.code = details.code ?? null;
    this.param = details.param ?? null;
    this.retryAfter = details.retryAfter ?? null;
  }
}

/** Whether the request is at fault: an unsupported file is not the request's fault. */
function isOfRequest(error: unknown): boolean {
  if (error instanceof UnsupportedError) return error.file === null;
  return error instanceof InvalidArgumentError || error instanceof LimitError;
}

/** The error that the client gets. Errors of its request keep their message; others become a general one. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const { message } = error as Error;
  if (error instanceof ContextLengthError)
    return new ApiError(400, message, { code: "context_length_exceeded", cause: error });
  if (isOfRequest(error)) return new ApiError(400, message, { cause: error });
  const isOfFile = error instanceof InvalidFileError || error instanceof UnsupportedError;
  const what = isOfFile ? "the model cannot serve this request" : "the server failed";
  return new ApiError(500, `${what}; its log says why, by the id of this request`, { cause: error });
}

/** OpenAI's error types by status. */
function openaiType(status: ErrorStatus): string {
  if (status === 401) return "authentication_error";
  if (status === 403) return "permission_error";
  if (status === 429) return "rate_limit_error";
  if (status === 503) return "service_unavailable_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

/** Anthropic's error types by status. */
function anthropicType(status: ErrorStatus): string {
  if (status === 401) return "authentication_error";
  if (status === 403) return "permission_error";
  if (status === 404) return "not_found_error";
  if (status === 413) return "request_too_large";
  if (status === 429) return "rate_limit_error";
  if (status === 503) return "overloaded_error";
  return status >= 500 ? "api_error" : "invalid_request_error";
}

/** The API that a path belongs to, which decides the form of its errors. */
export type ApiForm = "openai" | "anthropic" | "ollama";

export function apiFormOf(path: string): ApiForm {
  if (path.startsWith("/api/")) return "ollama";
  return path === "/v1/messages" || path.startsWith("/v1/messages/") ? "anthropic" : "openai";
}

/** The JSON body that reports an error. */
export function errorBody(error: ApiError, form: ApiForm, requestId: string): object {
  const { status, message, param, code } = error;
  if (form === "anthropic")
    return { type: "error", error: { type: anthropicType(status), message }, request_id: requestId };
  if (form === "ollama") return { error: message };
  return { error: { message, type: openaiType(status), param, code } };
}
