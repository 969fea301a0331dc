/** Streams of events: what they write, how they end, and that no text can forge an event. */
import { describe, expect, it, vi } from "vitest";
import { type StreamEvent, streamResponse } from "./sse.ts";

const options = {
  pingSeconds: 30,
  stalledSeconds: 30,
  failed: (error: unknown) => [{ event: "error", data: { message: (error as Error).message } }],
  abort: () => {},
};

async function* events(...data: readonly unknown[]): AsyncGenerator<StreamEvent> {
  for (const value of data) yield { data: value };
}

describe("streamResponse", () => {
  it("writes each event as one line of JSON", async () => {
    const response = await streamResponse(events({ a: 1 }, "[DONE]"), options);
    expect(response.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    expect(await response.text()).toBe('data: {"a":1}\n\ndata: [DONE]\n\n');
  });

  it.each(["\n\ndata: forged\n\n", "\r\rdata: forged\r\r", "\r\n\r\nevent: x\r\n", "\u2028data: x\u2029"])(
    "lets no text end an event: %j",
    async (text) => {
      const written = await (await streamResponse(events({ text }), options)).text();
      const lines = written.split(/\r\n|\n|\r/);
      expect(lines).toHaveLength(3);
      expect(JSON.parse(lines[0]!.slice("data: ".length))).toEqual({ text });
    },
  );

  it("throws what fails before the first event, and writes what fails after it", async () => {
    async function* failing(count: number): AsyncGenerator<StreamEvent> {
      for (let i = 0; i < count; i++) yield { data: i };
      throw new Error("broken");
    }
    await expect(streamResponse(failing(0), options)).rejects.toThrow("broken");
    const written = await (await streamResponse(failing(1), options)).text();
    expect(written).toBe('data: 0\n\nevent: error\ndata: {"message":"broken"}\n\n');
  });

  it("pings while nothing happens, also before the first event", async () => {
    async function* slow(): AsyncGenerator<StreamEvent> {
      await new Promise((resolve) => setTimeout(resolve, 700));
      yield { data: 1 };
    }
    const comment = await (await streamResponse(slow(), { ...options, pingSeconds: 0.1 })).text();
    expect(comment).toMatch(/^(: ping\n\n)+data: 1\n\n$/);
    const ping = () => [{ event: "ping", data: { type: "ping" } }];
    const named = await (await streamResponse(slow(), { ...options, pingSeconds: 0.1, ping })).text();
    expect(named).toMatch(/^(event: ping\ndata: \{"type":"ping"\}\n\n)+data: 1\n\n$/);
  });

  it("writes what comes in one turn of the event loop at once, after it has asked for more", async () => {
    const asked: number[] = [];
    async function* turns(): AsyncGenerator<StreamEvent> {
      for (let i = 0; i < 6; i++) {
        asked.push(i);
        if (i % 3 === 0) await new Promise((resolve) => setTimeout(resolve, 20));
        yield { data: i };
      }
    }
    const reader = (await streamResponse(turns(), options)).body!.getReader();
    const read = async () => new TextDecoder().decode((await reader.read()).value);
    expect(await read()).toBe("data: 0\n\ndata: 1\n\ndata: 2\n\n");
    expect(asked).toEqual([0, 1, 2, 3]);
    expect(await read()).toBe("data: 3\n\ndata: 4\n\ndata: 5\n\n");
  });

  it("ends what a reader has left, and what it takes nothing of", async () => {
    const ended = vi.fn();
    async function* endless(): AsyncGenerator<StreamEvent> {
      try {
        for (let i = 0; ; i++) yield { data: i };
      } finally {
        ended();
      }
    }
    const abort = vi.fn();
    const left = (await streamResponse(endless(), { ...options, abort })).body!.getReader();
    await left.read();
    await left.cancel("gone");
    expect([abort.mock.calls.length, ended.mock.calls.length]).toEqual([1, 1]);
    const stalled = (await streamResponse(endless(), { ...options, abort, stalledSeconds: 0.1 })).body!.getReader();
    await vi.waitFor(() => expect(ended).toHaveBeenCalledTimes(2));
    expect(abort.mock.calls[1]![0]).toMatchObject({ status: 408 });
    await expect(stalled.read().then(() => stalled.read())).rejects.toMatchObject({ status: 408 });
  });
});
