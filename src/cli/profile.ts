/** Output of `--profile` and `--trace`: a table, its data as JSON, and a file of trace events. */
import type { Profile } from "../index.ts";
import { writeFileWhole } from "../tools/index.ts";
import { formatBytes, formatTable } from "./table.ts";

/** Most rows of the table; further ones are summed up in one. */
const ROWS_MAX = 24;

/** A table of operators by time, slowest first, and the use of planned memory. */
export function describeProfile(profile: Profile): string {
  const entries = profile.entries();
  const rest = entries.slice(ROWS_MAX);
  const sum = (of: (entry: (typeof entries)[number]) => number) => rest.reduce((total, entry) => total + of(entry), 0);
  const row = (milliseconds: number, share: number, calls: number, bytes: number) => [
    milliseconds.toFixed(3),
    (100 * share).toFixed(1),
    calls,
    (bytes / 1e6).toFixed(2),
    (milliseconds > 0 ? bytes / milliseconds / 1e6 : 0).toFixed(2),
  ];
  const table = formatTable([
    ["ms", "%", "calls", "MB", "GB/s", "operator", "kernel", "shapes"],
    ...entries
      .slice(0, ROWS_MAX)
      .map(({ milliseconds, share, calls, bytes, operator, kernel, shapes }) => [
        ...row(milliseconds, share, calls, bytes),
        operator,
        kernel,
        shapes,
      ]),
    ...(rest.length === 0
      ? []
      : [
          [
            ...row(
              sum(({ milliseconds }) => milliseconds),
              sum(({ share }) => share),
              sum(({ calls }) => calls),
              sum(({ bytes }) => bytes),
            ),
            `${rest.length} more`,
            "",
            "",
          ],
        ]),
  ]);
  const inCalls = entries.reduce((total, { milliseconds }) => total + milliseconds, 0);
  const total = profile.milliseconds;
  const lines = [`operators: ${inCalls.toFixed(2)} ms of ${total.toFixed(2)} ms in runs of the program`];
  for (const { method, scratchBytes, stateBytes, peakBytes, meanBytes } of profile.memory.values())
    lines.push(
      `memory of ${method}: scratch ${formatBytes(scratchBytes)}, of which values in use take ` +
        `${percent(peakBytes, scratchBytes)} at most and ${percent(meanBytes, scratchBytes)} on average; state ${formatBytes(stateBytes)}`,
    );
  return [table, ...lines].join("\n");
}

function percent(part: number, whole: number): string {
  return `${whole > 0 ? Math.round((100 * part) / whole) : 0} %`;
}

/** A profile as data for programs. */
export function profileReport(profile: Profile): Record<string, unknown> {
  const memory = [...profile.memory.values()].map(({ method, scratchBytes, stateBytes, peakBytes, meanBytes }) => ({
    ...{ method, scratch_bytes: scratchBytes, state_bytes: stateBytes },
    ...{ peak_bytes_in_use: peakBytes, mean_bytes_in_use: meanBytes },
  }));
  const operators = profile.entries().map(({ gigabytesPerSecond, ...entry }) => ({
    ...entry,
    gb_per_second: gigabytesPerSecond,
  }));
  return { milliseconds: profile.milliseconds, operators, memory };
}

/** Writes the trace events as JSON. */
export async function writeTrace(profile: Profile, path: string): Promise<void> {
  const text = JSON.stringify(profile.trace());
  await writeFileWhole(path, async (sink) => sink.write(new TextEncoder().encode(text)));
}
