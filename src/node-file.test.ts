/** Files on disk: positioned reads, and writes that appear whole or not at all, on a full disk too. */
import { execFile, spawnSync } from "node:child_process";
import {
  appendFileSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { build } from "esbuild";
import { afterAll, beforeEach, describe, expect, test } from "vitest";
import { InvalidArgumentError, InvalidFileError } from "./errors.ts";
import {
  checkOutput,
  checkOutputFolder,
  checkWritable,
  makeFolder,
  openFile,
  readFileWhole,
  readTextIfAny,
  writeFileWhole,
} from "./node-file.ts";
import { newWriterId } from "./writer-id.ts";

const root = mkdtempSync(join(tmpdir(), "lowbit-file-"));
const folder = join(root, "target");
const path = join(folder, "file.bin");
afterAll(() => rmSync(root, { recursive: true }));
beforeEach(() => {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
});

describe("openFile", () => {
  test("reads ranges into new buffers and checks them", async () => {
    writeFileSync(path, Uint8Array.of(1, 2, 3, 4, 5));
    const source = await openFile(path);
    expect([source.name, source.size]).toEqual([path, 5]);
    expect(await source.read(1, 3)).toEqual(Uint8Array.of(2, 3, 4));
    expect(await source.read(5, 0)).toEqual(new Uint8Array(0));
    await expect(source.read(3, 3)).rejects.toThrow(`${path}: expected bytes 3 to 6 but the file has 5`);
    await source.close();
  });

  test("notices a file that is cut while it is open", async () => {
    writeFileSync(path, new Uint8Array(10));
    const source = await openFile(path);
    truncateSync(path, 4);
    await expect(source.read(2, 8)).rejects.toThrow(`${path}: file ends at 4`);
    await source.close();
  });

  test("notices a file that is written to while it is open, but not one that another takes the place of", async () => {
    writeFileSync(path, new Uint8Array(10));
    const source = await openFile(path);
    expect((await source.read(0, 4)).length).toBe(4);
    writeFileSync(path, new Uint8Array(10).fill(1));
    utimesSync(path, 1, 1);
    await expect(source.read(0, 4)).rejects.toThrow(`${path}: has changed since it was opened (it was written to)`);
    await source.close();
    const other = await openFile(path);
    writeFileSync(`${path}.new`, "another");
    renameSync(`${path}.new`, path);
    expect(await other.read(0, 2)).toEqual(Uint8Array.of(1, 1));
    appendFileSync(path, "more");
    await other.close();
  });

  test("names what is missing or no file", async () => {
    await expect(openFile(path)).rejects.toThrow(new InvalidFileError(path, "no such file"));
    await expect(openFile(folder)).rejects.toThrow(`${folder}: expected a file but found a directory`);
  });
});

test.each([
  [undefined, "Undefined"],
  [new URL("file:///model.pte"), "URL"],
])("what is no path is an error that says so: %s", async (path, found) => {
  const expected = new InvalidArgumentError(`path: expected a string but found ${found}`);
  await expect(openFile(path as never)).rejects.toThrow(expected);
  await expect(writeFileWhole(path as never, async () => {})).rejects.toThrow(expected);
});

describe("writeFileWhole", () => {
  test("removes what killed processes left of the same path, nothing else", async () => {
    const [place, pid, started] = newWriterId().split("-");
    const id = (pid: number | string, started: number | string) => `${place}-${pid}-${started}-0123456789ab`;
    const elsewhere = "0badcafe-17-4711-0123456789ab";
    const ended = [id(4194304, 1), id(pid!, 1), `${elsewhere.slice(0, -1)}c`].map((id) => `file.bin.${id}.part`);
    const others = [
      `other.${id(4194304, 1)}.part`,
      `file.bin.${id(pid!, started!)}.part`,
      `file.bin.${id(4194304, 1)}.part.txt`,
      `file.bin.${id(4194304, 1)}.partial`,
      `file.bin.${elsewhere}.part`,
      "file.bin.4194304-1.part",
    ];
    for (const name of [...ended, ...others]) writeFileSync(join(folder, name), "x");
    const longAgo = Date.now() / 1000 - 90_000;
    utimesSync(join(folder, ended[2]!), longAgo, longAgo);
    await writeFileWhole(path, (sink) => sink.write(Uint8Array.of(1)));
    expect(readdirSync(folder).toSorted()).toEqual(["file.bin", ...others].toSorted());
  });

  test("writes pieces in order and tells the position", async () => {
    const positions: number[] = [];
    await writeFileWhole(path, async (sink) => {
      positions.push(sink.position);
      await sink.write(Uint8Array.of(1, 2));
      await sink.write(new Uint8Array(0));
      positions.push(sink.position);
      await sink.write(Uint8Array.of(9, 3, 9).subarray(1, 2));
      positions.push(sink.position);
    });
    expect(readFileSync(path)).toEqual(Buffer.from([1, 2, 3]));
    expect(positions).toEqual([0, 2, 3]);
    expect(readdirSync(folder)).toEqual(["file.bin"]);
  });

  test("shows the old content until the new is complete", async () => {
    writeFileSync(path, "old");
    await writeFileWhole(path, async (sink) => {
      await sink.write(Buffer.from("new"));
      expect(readFileSync(path, "utf8")).toBe("old");
    });
    expect(readFileSync(path, "utf8")).toBe("new");
  });

  test.each(["with an old file", "without one"])(
    "an error while writing leaves things as they were, %s",
    async (kind) => {
      const hadFile = kind === "with an old file";
      if (hadFile) writeFileSync(path, "old");
      const failure = new InvalidArgumentError("no more data");
      const written = writeFileWhole(path, async (sink) => {
        await sink.write(Buffer.from("new"));
        throw failure;
      });
      await expect(written).rejects.toBe(failure);
      expect(readdirSync(folder)).toEqual(hadFile ? ["file.bin"] : []);
      if (hadFile) expect(readFileSync(path, "utf8")).toBe("old");
    },
  );

  test("an error while renaming leaves no temporary file", async () => {
    mkdirSync(path);
    await expect(writeFileWhole(path, async (sink) => sink.write(Buffer.from("new")))).rejects.toThrow();
    expect(readdirSync(folder)).toEqual(["file.bin"]);
  });

  test("two writes of one path at once leave one of them whole", async () => {
    const write = (letter: string) =>
      writeFileWhole(path, async (sink) => {
        for (let i = 0; i < 20; i++) await sink.write(Buffer.from(letter));
      });
    await Promise.all([write("a"), write("b")]);
    expect(["a".repeat(20), "b".repeat(20)]).toContain(readFileSync(path, "utf8"));
    expect(readdirSync(folder)).toEqual(["file.bin"]);
  });

  test("names a place that cannot be written", async () => {
    const absent = join(folder, "absent", "file.bin");
    await expect(writeFileWhole(absent, async () => {})).rejects.toThrow(`${absent}: cannot be written: ENOENT`);
    const other = (found: string) => `expected a file to write but found ${found}`;
    await expect(writeFileWhole(folder, async () => {})).rejects.toThrow(`${folder}: ${other("a directory")}`);
    await expect(checkWritable("")).rejects.toThrow('"": expected the path of a file to write');
    await expect(checkWritable("/dev/null")).rejects.toThrow(`/dev/null: ${other("a device")}`);
  });
});

/**
 * A limit on file sizes stands in for a full disk: the kernel writes up to it and then refuses with EFBIG, without
 * root or a file system of our own. Node ignores the signal that comes with it. The limit needs a process of its own,
 * and Node 20 runs no TypeScript, so the files under test are bundled as JavaScript first.
 */
describe.skipIf(process.platform === "win32")("on a full disk (skipped on Windows, which has no ulimit)", () => {
  test("a write fails with the file's name, keeps the old content and leaves no temporary file", async () => {
    const contents = `import { writeFileWhole } from "./node-file.ts";
      let progress = 0;
      const error = await writeFileWhole(process.argv[2], async (sink) => {
        for (let i = 0; i < 64; i++, progress = sink.position) await sink.write(new Uint8Array(100_000));
      }).catch((error) => error);
      console.log(JSON.stringify({ type: error?.name, message: error?.message, progress }));`;
    const child = join(root, "child.mjs");
    const stdin = { contents, resolveDir: fileURLToPath(new URL(".", import.meta.url)), loader: "js" } as const;
    await build({ stdin, bundle: true, platform: "node", format: "esm", keepNames: true, outfile: child });
    writeFileSync(path, "old");
    // 2048 blocks are 1 or 2 MiB, as the shell counts 512 or 1024 bytes.
    const script = 'ulimit -f 2048 && exec "$0" "$@"';
    const args = ["-c", script, process.execPath, child, path];
    const { stdout } = await promisify(execFile)("sh", args);
    const { type, message, progress } = JSON.parse(stdout);
    expect([type, message]).toEqual(["InvalidFileError", expect.stringContaining(`${path}: cannot be written: EFBIG`)]);
    expect(progress).toBeGreaterThan(500_000);
    expect(readFileSync(path, "utf8")).toBe("old");
    expect(readdirSync(folder)).toEqual(["file.bin"]);
  });
});

describe("makeFolder", () => {
  test("makes what is missing, and keeps what is there", async () => {
    await makeFolder(join(folder, "a", "b"));
    await makeFolder(join(folder, "a", "b"));
    expect(readdirSync(join(folder, "a"))).toEqual(["b"]);
  });

  test("refuses a file, and a folder that has no room for folders", async () => {
    writeFileSync(path, "");
    await expect(makeFolder(path)).rejects.toThrow(`${path}: expected a folder to write to but found a file`);
    await expect(makeFolder(join(path, "a"))).rejects.toThrow(InvalidFileError);
    if (process.platform === "linux")
      await expect(makeFolder("/proc/lowbit")).rejects.toThrow("/proc/lowbit: cannot be written");
  });

  test("shows an empty path as such", async () => {
    await expect(makeFolder("")).rejects.toThrow('"": ');
  });
});

describe.skipIf(process.platform === "win32")("what is no file is refused before it is opened", () => {
  test("named pipes, sockets, devices and folders, also by links", async () => {
    const [pipe, socket, link] = ["pipe", "socket", "link"].map((name) => join(folder, name)) as [
      string,
      string,
      string,
    ];
    expect(spawnSync("mkfifo", [pipe]).status).toBe(0);
    symlinkSync(pipe, link);
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(socket, resolve));
    const kinds = { [pipe]: "a named pipe", [link]: "a named pipe", [socket]: "a socket", "/dev/zero": "a device" };
    for (const [name, kind] of Object.entries({ ...kinds, [folder]: "a directory" })) {
      for (const read of [openFile, readFileWhole]) {
        await expect(read(name)).rejects.toThrow(InvalidFileError);
        await expect(read(name)).rejects.toThrow(`${name}: expected a file but found ${kind}`);
      }
      expect(await readTextIfAny(name)).toBe(null);
      await expect(checkWritable(name)).rejects.toThrow(`${name}: expected a file to write but found ${kind}`);
    }
    await new Promise((resolve) => server.close(resolve));
  });
});

describe("outputs over inputs", () => {
  const [model, checkpoint] = [join(folder, "model.gguf"), join(folder, "checkpoint")];
  const inside = (name: string) => join(checkpoint, name);
  beforeEach(() => {
    writeFileSync(model, "model");
    mkdirSync(checkpoint);
    for (const name of ["config.json", "model.safetensors", "old.pte"]) writeFileSync(inside(name), name);
    symlinkSync(model, join(folder, "link.gguf"));
    symlinkSync(checkpoint, join(folder, "link"));
    linkSync(model, join(folder, "hard.gguf"));
    linkSync(inside("config.json"), join(folder, "hard.json"));
  });

  test.each([
    ["model.gguf", "is read"],
    ["./checkpoint/../model.gguf", "would replace"],
    ["link.gguf", "would replace"],
    ["hard.gguf", "would replace"],
    ["hard.json", "would replace"],
    ["checkpoint/config.json", "part of the checkpoint"],
    ["link/model.safetensors", "part of the checkpoint"],
    ["checkpoint/tokenizer.json", "part of the checkpoint"],
    ["checkpoint/model-00001-of-00002.safetensors", "part of the checkpoint"],
    ["checkpoint/chat_template.jinja", "part of the checkpoint"],
  ])("%s is refused", async (name, problem) => {
    const output = `${folder}/${name}`;
    await expect(checkOutput(output, [model, checkpoint])).rejects.toThrow(InvalidFileError);
    await expect(checkOutput(output, [model, checkpoint])).rejects.toThrow(problem);
  });

  test.each(["new.gguf", "checkpoint/old.pte", "checkpoint/new.pte", "checkpoint/trace.json"])(
    "%s is not",
    async (name) => {
      await checkOutput(`${folder}/${name}`, [model, checkpoint, undefined, join(folder, "missing"), "hf:org/name"]);
    },
  );

  test("folders that are inputs, or hold them, are refused", async () => {
    for (const name of [checkpoint, `${checkpoint}/`, join(folder, "link")])
      for (const input of [checkpoint, inside("model.safetensors")])
        await expect(checkOutputFolder(name, [input])).rejects.toThrow("write to another folder");
    await expect(checkOutputFolder(folder, [model])).rejects.toThrow(`${folder}: holds ${model}`);
    await checkOutputFolder(join(folder, "new"), [model, checkpoint]);
    await checkOutputFolder(inside("new"), [checkpoint]);
  });

  test("a file that is read is not written until it is closed", async () => {
    const source = await openFile(model);
    for (const name of [model, join(folder, "link.gguf"), join(folder, "hard.gguf")])
      await expect(writeFileWhole(name, async (sink) => sink.write(new Uint8Array(1)))).rejects.toThrow(/read/);
    expect(readFileSync(model, "utf8")).toBe("model");
    await source.close();
    await writeFileWhole(model, async (sink) => sink.write(new Uint8Array(1)));
    expect(readFileSync(model).length).toBe(1);
  });
});
