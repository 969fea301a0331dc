/** Progress by a clock of the test's: nothing for short work, lines off a terminal, a bar on one. */
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import { describe, expect, test } from "vitest";
import { Progress } from "./progress.ts";

function shown(isTTY: boolean, steps: readonly (readonly [seconds: number, done: number])[]): Promise<string> {
  const stream = Object.assign(new PassThrough(), { isTTY });
  let now = 0;
  const progress = new Progress(stream, "loading", () => now);
  for (const [seconds, done] of steps) {
    now = 1000 * seconds;
    progress.update(done, 200);
  }
  progress.stop();
  stream.end();
  return text(stream);
}

describe("Progress", () => {
  test("says nothing of work that ends soon", async () => {
    const quick = [
      [0.1, 20],
      [0.2, 100],
      [0.4, 200],
    ] as const;
    expect([await shown(false, quick), await shown(true, quick)]).toEqual(["", ""]);
    expect(
      await shown(false, [
        [2, 100],
        [4, 200],
      ]),
    ).toBe("");
  });

  test("writes a line every five seconds, and at the end, where there is no terminal", async () => {
    const steps = [
      [1, 10],
      [5, 50],
      [6, 60],
      [10, 99],
      [12, 200],
    ] as const;
    expect(await shown(false, steps)).toBe("loading: 25 %\nloading: 49 %\nloading: 100 %\n");
  });

  test("tells of an end that is reported twice once, and of what begins anew", async () => {
    const steps = [
      [6, 60],
      [12, 200],
      [13, 200],
      [20, 200],
      [26, 20],
      [27, 200],
    ] as const;
    expect(await shown(false, steps)).toBe("loading: 30 %\nloading: 100 %\nloading: 10 %\nloading: 100 %\n");
  });

  test("draws a bar on a terminal and takes it away", async () => {
    const drawn = await shown(true, [
      [1, 100],
      [2, 200],
    ]);
    expect(drawn).toContain("loading");
    expect(drawn).toContain("50 %");
    expect(drawn).not.toContain("\n");
  });
});
