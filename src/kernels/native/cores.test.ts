/** Counts of cores by made-up files of Linux machines: what it has under /sys and /proc of each. */
import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { limitedMachines, type Machine, writeMachine } from "../../../test/support/control-groups.ts";
import { temporaryFolder } from "../../../test/support/folders.ts";
import { nativeAddon } from "./addon.ts";

/** Files of one CPU. */
function cpu(index: number, files: Machine): Machine {
  return Object.fromEntries(
    Object.entries(files).map(([name, text]) => [`sys/devices/system/cpu/cpu${index}/${name}`, text]),
  );
}

/** So many CPUs, each with its files. */
function machine(cpus: number, filesOf: (index: number) => Machine): Machine {
  return Object.assign({}, ...Array.from({ length: cpus }, (_, index) => cpu(index, filesOf(index))));
}

/** Four A55, two and two A76: numbers of cores begin anew in each cluster. */
const rk3588 = machine(8, (index) => ({
  cpu_capacity: index < 4 ? "414" : "1024",
  "topology/core_cpus_list": String(index),
  "topology/physical_package_id": "0",
  "topology/core_id": String(index < 4 ? index : index % 2),
}));

/** Eight performance cores of two threads, then eight efficiency cores; newer kernels give them capacities. */
const alderLake = {
  ...machine(24, (index) => ({
    cpu_capacity: index < 16 ? "1024" : "680",
    "topology/core_cpus_list": index < 16 ? `${index & ~1}-${index | 1}` : String(index),
  })),
  "sys/devices/cpu_core/cpus": "0-15",
  "sys/devices/cpu_atom/cpus": "16-23",
};

/** Two packages of 16 cores of two threads; siblings are 32 apart. An older kernel's name for the list. */
const server = machine(64, (index) => ({
  "topology/thread_siblings_list": `${index % 32},${(index % 32) + 32}`,
  "topology/core_id": String(index % 16),
}));

const folder = await temporaryFolder();
const addon = nativeAddon();

describe.skipIf(!addon)(`cores${addon ? "" : ": there is no native code here"}`, () => {
  it.each<[string, number, number, Machine]>([
    ["big and little cores", 8, 4, rk3588],
    ["little cores alone, when no others are allowed", 4, 4, rk3588],
    ["hybrid performance and efficiency cores", 24, 8, alderLake],
    ["some of the performance cores", 6, 3, alderLake],
    ["a server with two threads a core", 64, 32, server],
    ["a server with some of its CPUs", 33, 32, server],
    ["a machine that says nothing", 3, 3, {}],
    ["no CPU at all", 0, 1, {}],
    ["efficiency cores alone", 24, 24, { "sys/devices/cpu_core/cpus": "30-31" }],
    ["a list of several ranges", 12, 4, { "sys/devices/cpu_core/cpus": "0-1,8,10" }],
    ["a list that makes no sense", 2, 2, { "sys/devices/cpu_core/cpus": "?" }],
    ["a container of two CPUs' time", 64, 2, { ...server, "sys/fs/cgroup/cpu.max": "200000 100000" }],
    ["a container of more than there is", 4, 4, { "sys/fs/cgroup/cpu.max": "900000 100000" }],
  ])("%s: %i CPUs are %i cores", async (_, cpus, cores, files) => {
    const root = await writeMachine(await mkdtemp(join(folder, "root-")), files);
    expect(addon!.countCores(root, cpus)).toBe(cores);
  });

  it.each(limitedMachines)("of 64 CPUs within limits: %s keeps %d threads busy", async (_, threads, files) => {
    const root = await writeMachine(await mkdtemp(join(folder, "root-")), files);
    expect(addon!.countCores(root, 64)).toBe(Math.min(threads, 64));
  });
});
