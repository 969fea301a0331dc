/**
 * Answers requests that Node refuses before the app sees them: an error in the form of the API, then the connection is
 * closed.
 */
import { type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import { ApiError, apiFormOf, type ErrorStatus, errorBody } from "./errors.ts";
import { newId } from "./ids.ts";

interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

/** Status and message by the code of Node's error. */
const problems: Readonly<Record<string, readonly [ErrorStatus, string]>> = {
  HPE_HEADER_OVERFLOW: [431, "the headers are too large"],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: [413, "the extensions of the body's chunks are too large"],
  ERR_HTTP_REQUEST_TIMEOUT: [408, "headers and body did not arrive in time"],
  HPE_INVALID_EOF_STATE: [400, "the connection ended before the request was whole"],
};

/** A whole HTTP response as text, since Node may have no response object for a broken request. */
function answerOf(status: ErrorStatus, message: string, path: string): string {
  const id = newId("req", "_");
  const body = JSON.stringify(errorBody(new ApiError(status, message), apiFormOf(path), id));
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    "content-type: application/json",
    `content-length: ${Buffer.byteLength(body)}`,
    `x-request-id: ${id}`,
    "x-content-type-options: nosniff",
    "connection: close",
  ];
  return `${head.join("\r\n")}\r\n\r\n${body}`;
}

/** The path of a request line; "" when there is none. */
function pathIn(packet: Buffer | undefined): string {
  return /^[A-Z]+ ([^\s?]+)/.exec(packet?.toString("latin1", 0, 1000) ?? "")?.[1] ?? "";
}

/** Makes a server answer broken requests, whose connection Node would close without a response. */
export function answerBroken(server: Server): void {
  const exchanges = new WeakMap<Duplex, Exchange>();
  /** Sends an error on a connection that has no response under way, and closes it. */
  const refuse = (socket: Duplex, status: ErrorStatus, message: string, packet?: Buffer) => {
    const { request, response } = exchanges.get(socket) ?? {};
    if (!socket.writable || response?.headersSent) return;
    socket.end(answerOf(status, message, request?.url?.split("?", 1)[0] ?? pathIn(packet)));
  };
  server.prependListener("request", (request: IncomingMessage, response: ServerResponse) => {
    exchanges.set(request.socket, { request, response });
    response.once("close", () => {
      if (exchanges.get(request.socket)?.response === response) exchanges.delete(request.socket);
    });
  });
  // Runs before Node's own listener, which closes the connection: a client that closes its half counts as one that has
  // left.
  server.prependListener("connection", (socket: Duplex) =>
    socket.on("end", () => {
      const exchange = exchanges.get(socket);
      if (exchange)
        refuse(
          socket,
          400,
          exchange.request.complete
            ? "the connection was half closed before the answer: keep it open until that has come"
            : "the connection ended before the body had arrived whole",
        );
    }),
  );
  server.on("clientError", (error: NodeJS.ErrnoException & { rawPacket?: Buffer }, socket: Duplex) => {
    const [status, message] = problems[error.code ?? ""] ?? [
      400,
      `expected HTTP but found otherwise: ${error.message}`,
    ];
    if (error.code !== "ECONNRESET") refuse(socket, status, message, error.rawPacket);
    if (!socket.writableEnded) socket.destroy();
  });
  server.on("checkExpectation", (request: IncomingMessage, response: ServerResponse) => {
    exchanges.set(request.socket, { request, response });
    refuse(request.socket, 417, "expect: expected 100-continue or nothing");
  });
}
