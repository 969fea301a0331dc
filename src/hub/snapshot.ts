/**
 * Downloads a revision of a model to the cache, which is laid out as Python's huggingface_hub does, so that both share files:
 * models--org--name/{blobs/<etag>, snapshots/<commit>/<file> → blob, refs/<revision> with the commit}.
 */
import { copyFile, readdir, rename, rm, symlink } from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import { checkOptions, checkString } from "../arguments.ts";
import { logInfo } from "../log.ts";
import { cannotWrite, makeFolder, readTextIfAny, writeFileWhole } from "../node-file.ts";
import { newWriterId } from "../writer-id.ts";
import { type BlobOptions, type BlobSource, downloadBlob, exists } from "./blob.ts";
import { HubError, request, retried, StallWatch } from "./request.ts";
import { type HubSettings, hubSettings, parseRepository, type RepositoryName } from "./settings.ts";

/** Options of `pullModel`: the hub's settings, which files to download, progress in bytes, and an abort signal. */
export interface PullOptions extends Omit<BlobOptions, "token" | "onBytes"> {
  /** Address, cache and token of the hub. Default: from the environment variables. */
  readonly settings?: HubSettings | undefined;
  /** Chooses the files of the repository to download. Default: config, tokenizer and one format of weights. */
  readonly wanted?: ((names: readonly string[]) => readonly string[]) | undefined;
  /** Called before the download, when files are missing. If it throws or rejects, nothing is downloaded. */
  onPlan?(plan: PullPlan): void | Promise<void>;
  /** Called as files arrive, with the bytes done and the total. If it throws, the download ends. */
  onProgress?(doneBytes: number, totalBytes: number): void;
}

/** What a download will add. */
export interface PullPlan {
  /** Folder of the cache that it is saved to. */
  readonly folder: string;
  /** Missing files, with their sizes in bytes. */
  readonly files: readonly { readonly name: string; readonly bytes: number }[];
  /** Total bytes of the files. */
  readonly bytes: number;
}

/** Most redirects between names of a repository. */
const MOVES_MAX = 5;

/**
 * Downloads the missing files of a model to the cache and returns their folder. `name` is "org/name[@revision]", with or
 * without "hf:". HubError when the hub does not have it; offline, when the cache does not.
 */
export async function pullModel(name: string, options: PullOptions = {}): Promise<string> {
  checkString("name", name);
  checkOptions(options);
  const parsed = parseRepository(name);
  const settings = options.settings ?? (await hubSettings());
  const folder = join(settings.cache, `models--${parsed.repository.replaceAll("/", "--")}`);
  const wantedOf = options.wanted ?? wantedFiles;
  if (settings.offline) return cachedSnapshot(folder, parsed, wantedOf);
  const blobOptions = { ...options, token: settings.token };
  const { commit, names } = await revisionInfo(settings, parsed, blobOptions);
  const wanted = wantedOf(names);
  const snapshot = join(folder, "snapshots", commit);
  const missing: { readonly name: string; readonly source: BlobSource }[] = [];
  for (const file of wanted)
    if (!(await exists(join(snapshot, file)))) {
      const url = `${settings.endpoint}/${parsed.repository}/resolve/${commit}/${file.split("/").map(encodeURIComponent).join("/")}`;
      missing.push({ name: file, source: await fileInfo(url, blobOptions) });
    }
  const totalBytes = missing.reduce((sum, { source }) => sum + source.size, 0);
  const files = missing.map(({ name: file, source }) => ({ name: file, bytes: source.size }));
  if (files.length > 0) await options.onPlan?.({ folder, files, bytes: totalBytes });
  let doneBytes = 0;
  for (const { name: file, source } of missing) {
    const blob = join(folder, "blobs", source.etag);
    const onBytes = (count: number) => {
      doneBytes += count;
      options.onProgress?.(doneBytes, totalBytes);
    };
    await downloadBlob(source, blob, { ...blobOptions, onBytes });
    await link(blob, join(snapshot, file));
  }
  await keepRef(join(folder, "refs", parsed.revision), commit);
  return snapshot;
}

/** Saves the commit of a revision, for later use offline. A failure is ignored: a read-only cache is usable without it. */
async function keepRef(path: string, commit: string): Promise<void> {
  if (basename(path) === commit || (await readTextIfAny(path)) === commit) return;
  try {
    await makeFolder(dirname(path));
    await writeFileWhole(path, (sink) => sink.write(new TextEncoder().encode(commit)));
  } catch (error) {
    logInfo(() => `${(error as Error).message}: not found by this name offline`);
  }
}

/** Folder of the cached snapshot. HubError when it is missing or incomplete. */
async function cachedSnapshot(
  folder: string,
  { repository, revision }: RepositoryName,
  wantedOf: (names: readonly string[]) => readonly string[],
): Promise<string> {
  const commit = (await readTextIfAny(join(folder, "refs", revision))) ?? revision;
  const snapshot = join(folder, "snapshots", commit.trim());
  const listed = await readdir(snapshot, { recursive: true }).catch(() => []);
  // Dangling links are listed, too.
  const there = await Promise.all(listed.map((name) => exists(join(snapshot, name))));
  const names = listed.filter((_, i) => there[i]);
  const missing = `${repository}@${revision}: is not in the cache ${folder}, and HF_HUB_OFFLINE forbids to download it`;
  if (names.length === 0) throw new HubError(missing);
  try {
    wantedOf(names);
  } catch (cause) {
    throw new HubError(`${missing}: ${(cause as Error).message}`, false, { cause });
  }
  return snapshot;
}

/**
 * Creates a relative link, as Python does, or a copy where links are not supported. Replaces what others may have linked
 * meanwhile.
 */
async function link(blob: string, target: string): Promise<void> {
  await makeFolder(dirname(target));
  const temporary = `${target}.${newWriterId()}.part`;
  try {
    await symlink(relative(dirname(target), blob), temporary).catch(() => copyFile(blob, temporary));
    await rename(temporary, target);
  } catch (cause) {
    await rm(temporary, { force: true });
    throw cannotWrite(target, cause as Error);
  }
}

interface Revision {
  readonly commit: string;
  readonly names: readonly string[];
}

async function revisionInfo(
  { endpoint }: HubSettings,
  { repository, revision }: RepositoryName,
  options: BlobOptions,
): Promise<Revision> {
  const url = `${endpoint}/api/models/${repository}/revision/${encodeURIComponent(revision)}`;
  return retried(options, async () => {
    const watch = new StallWatch(options);
    try {
      const response = await request(url, {}, options, watch);
      const info = (await response.json().catch((cause: unknown) => {
        throw new HubError(`${url}: expected JSON`, true, { cause });
      })) as { sha?: unknown; siblings?: unknown };
      const files = Array.isArray(info.siblings) ? info.siblings : [];
      const names = files.map((file: { rfilename?: unknown }) => file?.rfilename);
      if (typeof info.sha !== "string" || !/^[0-9a-f]{4,64}$/.test(info.sha) || !names.every(isSafeName))
        throw new HubError(`${url}: expected a commit and a list of files`);
      return { commit: info.sha, names };
    } finally {
      watch.stop();
    }
  });
}

/** Whether a file name is a path within the repository, without a way out of the folder. */
function isSafeName(name: unknown): name is string {
  return typeof name === "string" && name.split("/").every((part) => part !== "" && !/^\.+$|[\\:\0]/.test(part));
}

/** Size and content hash of a file, from the headers of the hub itself, not of the store that it redirects to. */
async function fileInfo(url: string, options: BlobOptions): Promise<BlobSource> {
  return retried(options, async () => {
    const watch = new StallWatch(options);
    try {
      const { headers: found } = await head(url, options, watch);
      const etag = (found.get("x-linked-etag") ?? found.get("etag") ?? "").replace(/^W\//, "").replaceAll('"', "");
      const size = Number(found.get("x-linked-size") ?? found.get("content-length") ?? Number.NaN);
      if (!/^[\w-]+$/.test(etag) || !Number.isSafeInteger(size) || size < 0)
        throw new HubError(`${url}: expected an ETag and a size but found "${etag}" and ${size}`);
      return { url, etag, size };
    } finally {
      watch.stop();
    }
  });
}

/** Requests a file's headers. Redirects to a moved repository are followed, but not to the store of large files. */
async function head(url: string, options: BlobOptions, watch: StallWatch): Promise<Response> {
  let at = url;
  for (let step = 0; step < MOVES_MAX; step++) {
    const headers = { "accept-encoding": "identity" };
    const response = await request(at, { method: "HEAD", redirect: "manual", headers }, options, watch);
    const location = response.headers.get("location");
    if (response.status < 300 || !location || response.headers.has("x-linked-etag")) return response;
    const next = new URL(location, at);
    if (next.origin !== new URL(at).origin) return response;
    at = next.href;
  }
  throw new HubError(`${url}: moved more than ${MOVES_MAX} times`);
}

const texts =
  /^(config|generation_config|tokenizer|tokenizer_config|added_tokens|special_tokens_map|params)\.json$|^chat_template\.jinja$/;
/** Files of sentence-transformers beside a model, and in the folders of the modules after it. */
const sentenceTexts =
  /^(modules|sentence_bert_config|config_sentence_transformers)\.json$|^\d+_\w+\/(config\.json|model\.safetensors)$/;
/** Formats of weights, best first: the first one that a repository has is used. */
const weights = [
  /^model(-\d+-of-\d+)?\.safetensors$|^model\.safetensors\.index\.json$/,
  /^pytorch_model(-\d+-of-\d+)?\.bin$|^pytorch_model\.bin\.index\.json$/,
  /^consolidated\.\d+\.pth$/,
];

/**
 * Names of config, tokenizer and template files, and of the weights in one format. HubError when there are no supported
 * weights.
 */
export function wantedFiles(names: readonly string[]): string[] {
  const format = weights.find((pattern) => names.some((name) => pattern.test(name)));
  const ggufs = names.filter((name) => name.endsWith(".gguf"));
  if (!format && ggufs.length !== 1)
    throw new HubError(
      `expected safetensors, pytorch_model.bin, consolidated.*.pth or one .gguf among: ${names.join(", ")}`,
    );
  const isText = (name: string) => texts.test(name) || (names.includes("modules.json") && sentenceTexts.test(name));
  return names.filter((name) => isText(name) || (format ? format.test(name) : name === ggufs[0]));
}
