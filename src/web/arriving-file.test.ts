/** Reads of a file that comes meanwhile: what they wait for, what is held, how they end. */
import { describe, expect, it } from "vitest";
import { InvalidFileError } from "../errors.ts";
import { ArrivingFile } from "./arriving-file.ts";

const bytes = Uint8Array.from({ length: 1000 }, (_, i) => (7 * i) % 251);

/** Adds the bytes in parts, each when the file asks for it; gives the most that was held. */
async function feed(file: ArrivingFile, partBytes: number): Promise<number> {
  let most = 0;
  for (let at = 0; at < bytes.length; at += partBytes) {
    await file.append(bytes.slice(at, at + partBytes));
    most = Math.max(most, file.bufferedBytes);
  }
  file.end();
  return most;
}

describe("a file that arrives", () => {
  it("holds what was not read for good, and no more comes than is asked for", async () => {
    const file = new ArrivingFile("model.pte", bytes.length);
    const feeding = feed(file, 32);
    expect(await file.read(10, 50)).toEqual(bytes.slice(10, 60));
    expect(file.bufferedBytes).toBe(64);
    const shared = new Uint8Array(new SharedArrayBuffer(400));
    for (const [start, length] of [
      [100, 300],
      [407, 93],
      [500, 400],
    ] as const) {
      await file.readInto(start, shared.subarray(0, length));
      expect([...shared.subarray(0, length)]).toEqual([...bytes.subarray(start, start + length)]);
    }
    // The first hundred, the gap of seven, and the rest of the last part.
    expect(file.bufferedBytes).toBe(100 + 7 + 28);
    expect(await file.read(960, 40)).toEqual(bytes.slice(960));
    await file.close();
    expect(await feeding).toBeLessThan(250);
  });

  it("gives bytes that were passed over to who asks later", async () => {
    const file = new ArrivingFile("model.pte", 0);
    void feed(file, 100);
    const target = new Uint8Array(50);
    await file.readInto(730, target);
    await file.readInto(80, target);
    expect(target).toEqual(bytes.slice(80, 130));
    expect(await file.read(130, 500)).toEqual(bytes.slice(130, 630));
    await expect(file.readInto(100, target)).rejects.toThrow(/byte 100 to be read once/);
    await expect(file.read(60, 100)).rejects.toThrow(/to be read once/);
  });

  it("ends reads that wait, with the error or with where it ends", async () => {
    const cut = new ArrivingFile("model.pte", 0);
    void feed(cut, 100);
    await expect(cut.readInto(990, new Uint8Array(20))).rejects.toThrow(
      new InvalidFileError("model.pte", "ends at byte 1000; it is truncated or damaged"),
    );
    const failed = new ArrivingFile("model.pte", 100);
    const reading = failed.read(0, 10);
    const error = new Error("network");
    failed.end(error);
    await expect(reading).rejects.toBe(error);
    await expect(failed.read(95, 10)).rejects.toThrow(/has 100/);
  });

  it("lets go of who adds bytes when it is closed", async () => {
    let isClosed = false;
    const file = new ArrivingFile("model.pte", 0, () => {
      isClosed = true;
    });
    const adding = file.append(bytes);
    await file.close();
    await adding;
    await file.append(bytes);
    expect([file.bufferedBytes, isClosed]).toEqual([0, true]);
  });
});
