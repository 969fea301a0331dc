/** Turns: as many at once as may be, in the order of arrival, and a queue that is bounded. */
import { describe, expect, it } from "vitest";
import { Admission } from "./admission.ts";

const never = new AbortController().signal;

describe("Admission", () => {
  it("lets as many run as may, and others in the order in which they came", async () => {
    const admission = new Admission({ running: 4, waiting: 10 });
    const order: string[] = [];
    const leaveFirst = await admission.enter(3, never);
    const wide = admission.enter(2, never).then((leave) => {
      order.push("wide");
      return leave;
    });
    const small = admission.enter(1, never).then((leave) => {
      order.push("small");
      return leave;
    });
    await Promise.resolve();
    expect([admission.running, admission.waiting, order]).toEqual([3, 2, []]);
    leaveFirst();
    leaveFirst();
    (await wide)();
    (await small)();
    expect([order, admission.running, admission.waiting]).toEqual([["wide", "small"], 0, 0]);
  });

  it("lets one that is larger than what runs at once run alone", async () => {
    const admission = new Admission({ running: 2, waiting: 1 });
    const leave = await admission.enter(8, never);
    expect(admission.running).toBe(2);
    leave();
    expect(admission.running).toBe(0);
  });

  it("refuses one more than may wait, with a time to come again", async () => {
    const admission = new Admission({ running: 1, waiting: 1 });
    const leave = await admission.enter(1, never);
    const waiting = admission.enter(1, never);
    await expect(admission.enter(1, never)).rejects.toMatchObject({ status: 429, retryAfter: 1 });
    leave();
    (await waiting)();
  });

  it("forgets one that leaves the queue, and lets those behind it pass", async () => {
    const admission = new Admission({ running: 2, waiting: 5 });
    const leave = await admission.enter(1, never);
    const gone = new AbortController();
    const first = admission.enter(2, gone.signal);
    const second = admission.enter(1, never);
    gone.abort(new Error("left"));
    await expect(first).rejects.toThrow("left");
    (await second)();
    leave();
    await expect(admission.enter(1, gone.signal)).rejects.toThrow("left");
    expect([admission.running, admission.waiting]).toEqual([0, 0]);
  });
});
