/** Models of the hub by name: run once quantizes and keeps them; list, show and rm; what doctor tells of this machine. */
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { lowbit } from "../../test/support/command-line.ts";
import { temporaryFolder } from "../../test/support/folders.ts";
import { type HubServer, serveHub } from "../../test/support/hub-server.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { adviceFor } from "../api/diagnosis.ts";
import { saveGguf } from "../api/save-gguf.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { hostCpu } from "../kernels/cpu.ts";

const folder = await temporaryFolder();
let hub: HubServer;
beforeAll(async () => {
  await writeTinyCheckpoint(join(folder, "tiny"));
  hub = await serveHub(join(folder, "tiny"));
  vi.stubEnv("HF_ENDPOINT", hub.endpoint);
  vi.stubEnv("HF_HUB_CACHE", join(folder, "hub"));
  vi.stubEnv("LOWBIT_CACHE", join(folder, "programs"));
});
afterAll(() => {
  hub.close();
  vi.unstubAllEnvs();
});

test("run quantizes a model of the hub once, tells what it needs before the download, and then runs it from the cache", async () => {
  expect((await lowbit(["list"])).stdout).toBe(`no programs in ${join(folder, "programs")}\n`);
  const run = ["run", "hf:org/name", "The quick", "-n", "4", "--temperature", "0"];
  const first = await lowbit(run);
  expect(first.code).toBe(0);
  expect(first.stderr).toMatch(/org\/name: downloads .* then takes about .* more on disk \(.* free\) and .* memory/);
  hub.requests.length = 0;
  const second = await lowbit(run);
  expect([second.code, second.stdout]).toEqual([0, first.stdout]);
  expect(second.stderr).not.toContain("downloads");
  expect(hub.requests).toEqual([]);
  expect((await lowbit([...run, "--qmode", "8da8w"])).code).toBe(0);

  const listed = await lowbit(["list"]);
  expect(listed.stdout.split("\n")).toHaveLength(4);
  expect(listed.stdout).toMatch(/^hf:org\/name +qmode 8da8w +.* kB +\d{4}-\d\d-\d\d \d\d:\d\d +/m);
  expect(listed.stdout).toMatch(/^hf:org\/name +4 bits of a codebook, groups of 16 with scales of 8 bits +/m);
  const shown = await lowbit(["show", "hf:org/name", "--json"]);
  expect(JSON.parse(shown.stdout)).toMatchObject({ model: "hf:org/name", quantization: "qmode 8da8w", chat: true });
  expect((await lowbit(["show", "hf:org/name"])).stdout).toMatch(/^weights +.* million, .* bits each/m);

  expect((await lowbit(["rm", "hf:org/name"])).stdout.match(/^removed /gm)).toHaveLength(2);
  const again = await lowbit(["rm", "hf:org/name"]);
  expect([again.code, again.stderr]).toEqual([1, expect.stringContaining("expected a model of the cache")]);
  const gone = await lowbit(["show", "hf:org/name"]);
  expect([gone.code, gone.stderr]).toEqual([2, expect.stringContaining("is not kept as a program")]);
});

test("show tells what a checkpoint is, as a folder and as a GGUF", async () => {
  const tiny = join(folder, "tiny");
  const gguf = join(folder, "tiny.gguf");
  const checkpoint = await loadCheckpoint(tiny);
  await saveGguf(checkpoint, gguf);
  await checkpoint.close();
  const shown = async (model: string) => JSON.parse((await lowbit(["show", model, "--json"])).stdout);
  const [ofFolder, ofFile] = [await shown(tiny), await shown(gguf)];
  const { parameters, contextLength, vocabulary } = ofFolder;
  expect(ofFile).toMatchObject({ model: gguf, parameters, contextLength, vocabulary });
  expect(parameters).toBeGreaterThan(1000);
  expect(ofFile.bytes).toBe(statSync(gguf).size);
  const text = await lowbit(["show", gguf]);
  expect([text.code, text.stdout]).toEqual([0, expect.stringMatching(/^checkpoint +.*tiny\.gguf$/m)]);
  expect(text.stdout).toMatch(/^stored +.*float: \d+ /m);
  const damaged = join(folder, "damaged.gguf");
  writeFileSync(damaged, readFileSync(gguf).subarray(0, 100));
  const refused = await lowbit(["show", damaged]);
  expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining("damaged.gguf")]);
});

test("doctor tells what this machine runs models with", async () => {
  const { code, stdout } = await lowbit(["doctor", "--json"]);
  expect(code).toBe(0);
  const found = JSON.parse(stdout);
  expect(found.features).toEqual([...hostCpu().features]);
  expect(found.threads).toBeGreaterThan(0);
  expect(found.memory.freeBytes).toBeLessThanOrEqual(found.memory.totalBytes);
  if (found.backend === "native") expect(found.readBytesPerSecond).toBeGreaterThan(1e6);
  else expect(found.readBytesPerSecond).toBeNull();
  expect((await lowbit(["doctor"])).stdout).toMatch(/^CPU +.*, \d+ cores$/m);
});

test("advice names what is missing and what to do", () => {
  const well = { backend: "native", threads: 8, cores: 8, unserved: [] } as const;
  expect(adviceFor(well)).toEqual([]);
  expect(adviceFor({ ...well, backend: "wasm" })[0]).toContain("Native kernels would be several times as fast");
  expect(adviceFor({ ...well, unserved: ["avx512_vnni"] })[0]).toContain("node scripts/native/build.js");
  expect(adviceFor({ ...well, threads: 1 })[0]).toContain("One of 8 cores is used");
  vi.stubEnv("LOWBIT_CPU", "scalar");
  expect(adviceFor(well)[0]).toContain("LOWBIT_CPU is scalar");
});
