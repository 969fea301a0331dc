/** The files of examples/deploy: what Kubernetes and nginx would refuse in them, and that they fit the server. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Deployment } from "kubernetes-models/apps/v1/Deployment";
import { HorizontalPodAutoscaler } from "kubernetes-models/autoscaling/v2/HorizontalPodAutoscaler";
import { PodDisruptionBudget } from "kubernetes-models/policy/v1/PodDisruptionBudget";
import { Service } from "kubernetes-models/v1/Service";
import { describe, expect, inject, it } from "vitest";
import { parseAllDocuments } from "yaml";
import { isInstalled, main } from "./process.js";

const pathOf = (name) => fileURLToPath(new URL(`../../examples/deploy/${name}`, import.meta.url));
const kinds = { Deployment, Service, PodDisruptionBudget, HorizontalPodAutoscaler };
const documents = parseAllDocuments(readFileSync(pathOf("kubernetes/lowbit.yaml"), "utf8"));
const objects = documents.map((document) => document.toJS());
const of = (kind) => objects.find((object) => object.kind === kind);
const pod = of("Deployment").spec.template.spec;
const [container] = pod.containers;

describe("the files for Kubernetes", () => {
  it("are what its schemas say", () => {
    expect(documents.flatMap(({ errors, warnings }) => [...errors, ...warnings])).toEqual([]);
    expect(objects.map(({ kind }) => kind)).toEqual(Object.keys(kinds));
    for (const object of objects) new kinds[object.kind](object).validate();
    const wrong = structuredClone(of("Deployment"));
    wrong.spec.template.spec.containers[0].ports[0].containerPort = "8080";
    expect(() => new Deployment(wrong).validate()).toThrow(/containerPort/);
  });

  it("choose the pods that they make", () => {
    const { labels } = of("Deployment").spec.template.metadata;
    expect(of("Deployment").spec.selector.matchLabels).toEqual(labels);
    expect(of("Service").spec.selector).toEqual(labels);
    expect(of("PodDisruptionBudget").spec.selector.matchLabels).toEqual(labels);
    expect(of("HorizontalPodAutoscaler").spec.scaleTargetRef.name).toBe(of("Deployment").metadata.name);
    expect(container.ports.map(({ name }) => name)).toContain(of("Service").spec.ports[0].targetPort);
  });

  it("ask what the server answers", async () => {
    const url = inject("url");
    for (const probe of ["startupProbe", "readinessProbe", "livenessProbe"])
      expect((await fetch(url + container[probe].httpGet.path)).status).toBe(200);
    const annotations = of("Deployment").spec.template.metadata.annotations;
    const metrics = await (await fetch(url + annotations["prometheus.io/path"])).text();
    for (const { pods } of of("HorizontalPodAutoscaler").spec.metrics) expect(metrics).toContain(pods.metric.name);
  });

  it("give the server options that it has, and the time that it takes to end", () => {
    const help = spawnSync(process.execPath, [main, "serve", "--help"], { encoding: "utf8" }).stdout;
    for (const flag of container.args.filter((arg) => arg.startsWith("--"))) expect(help).toContain(flag);
    const drain = Number(/^drainSeconds=(\d+)$/.exec(container.args.at(-1))[1]);
    const pause = Number(container.lifecycle.preStop.exec.command[1]);
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(drain + pause);
  });
});

it.skipIf(!(await isInstalled("nginx")))("the file for nginx is one (skipped without nginx)", () => {
  const folder = mkdtempSync(join(tmpdir(), "lowbit-serve-deploy-"));
  const argv = ["-t", "-e", "stderr", "-p", folder, "-g", `pid ${folder}/nginx.pid;`, "-c", pathOf("nginx.conf")];
  const { status, stderr } = spawnSync("nginx", argv, { encoding: "utf8" });
  rmSync(folder, { recursive: true });
  expect(stderr).toMatch(/syntax is ok/);
  expect(status).toBe(0);
});
