/** Files of Linux machines whose control groups limit the time of CPUs, and how many threads that keeps busy. */
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

/** Files of a machine, by their paths under the root. */
export type Machine = Readonly<Record<string, string>>;

/** Writes a machine's files under a folder, which the result names with a slash at its end. */
export async function writeMachine(folder: string, files: Machine): Promise<string> {
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), text.endsWith("\n") ? text : `${text}\n`);
  }
  return `${folder}/`;
}

const none = Number.POSITIVE_INFINITY;
const own = (line: string) => ({ "proc/self/cgroup": `${line}\n` });
const first = (quota: string, path = "") => ({
  [`sys/fs/cgroup/cpu${path}/cpu.cfs_quota_us`]: quota,
  [`sys/fs/cgroup/cpu${path}/cpu.cfs_period_us`]: "100000",
});

export const limitedMachines: readonly (readonly [name: string, threads: number, files: Machine])[] = [
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
];
