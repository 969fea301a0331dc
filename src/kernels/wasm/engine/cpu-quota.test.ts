/** Limits of containers by made-up files of control groups, of both versions. */
import { mkdir, mkdtemp, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { temporaryFolder } from "../../../../test/support/folders.ts";
import { quotaThreads } from "./cpu-quota.ts";

const folder = await temporaryFolder();
const none = Number.POSITIVE_INFINITY;
const own = (line: string) => ({ "proc/self/cgroup": `${line}\n` });
const first = (quota: string, path = "") => ({
  [`sys/fs/cgroup/cpu${path}/cpu.cfs_quota_us`]: quota,
  [`sys/fs/cgroup/cpu${path}/cpu.cfs_period_us`]: "100000",
});

describe("threads that a container keeps busy", () => {
  it.each<[string, number, Record<string, string>]>([
    ["no control groups", none, {}],
    ["no limit", none, { "sys/fs/cgroup/cpu.max": "max 100000" }],
    ["two CPUs' time", 2, { ...own("0::/"), "sys/fs/cgroup/cpu.max": "200000 100000" }],
    ["one and a half", 2, { "sys/fs/cgroup/cpu.max": "75000 50000" }],
    ["a tenth", 1, { "sys/fs/cgroup/cpu.max": "10000 100000" }],
    ["a limit that makes no sense", none, { "sys/fs/cgroup/cpu.max": "?" }],
    ["a group's own limit", 3, { ...own("0::/a/b"), "sys/fs/cgroup/a/b/cpu.max": "300000 100000" }],
    [
      "a limit of the group around it",
      1,
      {
        ...own("0::/a/b"),
        "sys/fs/cgroup/a/b/cpu.max": "300000 100000",
        "sys/fs/cgroup/a/cpu.max": "100000 100000",
      },
    ],
    ["another group's limit", none, { ...own("0::/a"), "sys/fs/cgroup/b/cpu.max": "100000 100000" }],
    ["an older container of three", 3, first("300000")],
    ["an older container without a limit", none, first("-1")],
    ["an older group of its own", 2, { ...own("4:cpu,cpuacct:/docker/x"), ...first("150000", "/docker/x") }],
    ["an older group of another controller", none, { ...own("4:memory:/docker/x"), ...first("150000", "/docker/x") }],
  ])("%s: %d", async (_, threads, files) => {
    const root = `${await mkdtemp(join(folder, "root-"))}/`;
    for (const [name, text] of Object.entries(files)) {
      await mkdir(dirname(join(root, name)), { recursive: true });
      await writeFile(join(root, name), text.endsWith("\n") ? text : `${text}\n`);
    }
    expect(quotaThreads(root)).toBe(threads);
  });
});
