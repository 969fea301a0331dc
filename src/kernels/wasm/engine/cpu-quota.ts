/**
 * Computes how many threads fit the CPU time that Linux control groups (v1 and v2) give this process. native/cores.cc does the
 * same for native threads and where there is no JavaScript; this is for when there is no addon. One list of machines tests
 * both. A container is stopped for the rest of a period when its quota is used up.
 */
import { nodeBuiltin } from "../../../node-builtin.ts";

/**
 * Number of whole threads within the quotas of this process's group and its ancestors; Infinity without a quota and outside
 * Linux.
 */
export function quotaThreads(root = "/"): number {
  const fs = nodeBuiltin<typeof import("node:fs")>("node:fs");
  if (!fs) return Number.POSITIVE_INFINITY;
  const read = (name: string): string => {
    try {
      return fs.readFileSync(`${root}${name}`, "utf8");
    } catch {
      return "";
    }
  };
  const own = read("proc/self/cgroup").split("\n");
  const quotas = [2, 1].flatMap((version) => {
    const mount = version === 2 ? "sys/fs/cgroup" : "sys/fs/cgroup/cpu";
    return pathsAround(groupPath(own, version)).map((path) => quotaOf((name) => read(`${mount}${path}/${name}`)));
  });
  return Math.min(...quotas.map((quota) => Math.ceil(quota)));
}

/** Path of this process's group: in v2, the entry without controllers, in v1 that of the CPU controller. */
function groupPath(lines: readonly string[], version: number): string {
  for (const line of lines) {
    // hierarchy:controllers:path
    const [, controllers, path] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    const isIt = version === 2 ? controllers === "" : controllers?.split(",").includes("cpu");
    if (isIt) return path === "/" ? "" : path!;
  }
  return "";
}

/** The path and its ancestors: "/a/b", "/a", "". */
function pathsAround(path: string): string[] {
  const parts = path.split("/");
  return parts.map((_, i) => parts.slice(0, parts.length - i).join("/"));
}

/** Quota of a group in CPUs. */
function quotaOf(read: (name: string) => string): number {
  const second = /^(\d+) (\d+)/.exec(read("cpu.max"));
  const [quota, period] = second
    ? [Number(second[1]), Number(second[2])]
    : [Number(read("cpu.cfs_quota_us")), Number(read("cpu.cfs_period_us"))];
  return quota > 0 && period > 0 ? quota / period : Number.POSITIVE_INFINITY;
}
