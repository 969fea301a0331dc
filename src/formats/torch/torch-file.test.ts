/** Files that torch.save wrote (scripts/goldens/torch-goldens.py), pickles with code, and damaged ones. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { Random } from "../../../test/support/random.ts";
import { memorySource } from "../../byte-source.ts";
import { LowbitError } from "../../errors.ts";
import { toFloat32 } from "../../tensor.ts";
import { openTorchFile } from "./torch-file.ts";

const files = JSON.parse(readFileSync(new URL("torch-files.json.golden", import.meta.url), "utf8")) as Record<
  string,
  string
>;
const bytesOf = (name: string) => new Uint8Array(Buffer.from(files[name]!, "base64"));
const open = (bytes: Uint8Array) => openTorchFile(memorySource("x.pth", bytes));

/** 0, 1/8 .. 11/8 in rows of 3. */
const values = Float32Array.from({ length: 12 }, (_, i) => i / 8);

describe("a file of torch.save", () => {
  it.each([
    ["state", ""],
    ["protocol4", ""],
    ["nested", "model."],
  ])("%s: tensors of every float type, views by rows, parameters", async (name, prefix) => {
    const tensors = await open(bytesOf(name));
    expect(tensors.names).toEqual(["matrix", "rows", "half", "brain", "parameter"].map((item) => prefix + item));
    expect(await tensors.read(`${prefix}matrix`)).toEqual({ dtype: "f32", shape: [4, 3], data: values });
    expect((await tensors.read(`${prefix}rows`)).data).toEqual(values.slice(3, 9));
    expect(tensors.info(`${prefix}half`).dtype).toBe("f16");
    expect(toFloat32(await tensors.read(`${prefix}half`))).toEqual(values);
    expect(toFloat32(await tensors.readRows(`${prefix}brain`, 2, 2))).toEqual(values.slice(6));
    expect((await tensors.read(`${prefix}parameter`)).data).toEqual(values.slice(0, 3));
  });

  it.each<[string, RegExp]>([
    ["code", /pickle calls "(posix|nt).system", which is not run: only tensors are read/],
    ["compressed", /data.pkl is compressed/],
    ["empty", /expected a dictionary of tensors/],
    ["negated", /found one with torch's neg bit; save x.resolve_neg\(\) in its place/],
  ])("%s is refused", async (name, message) => {
    await expect(open(bytesOf(name))).rejects.toThrow(message);
    await expect(open(bytesOf(name))).rejects.toThrow(LowbitError);
  });

  it("classes of TorchAO are refused by name, of version 2 and of version 1", async () => {
    await expect(open(bytesOf("torchao"))).rejects.toThrow(
      /tensors of "torchao.quantization.IntxUnpackedToInt8Tensor" are read from safetensors alone$/,
    );
    const bytes = Buffer.from(bytesOf("torchao"));
    const [second, first] = [
      "torchao.quantization\nIntxUnpackedToInt8Tensor",
      "torchao.dtypes.affine_q\nAffineQuantizedTensor",
    ];
    const old = bytes.toString("latin1").replaceAll(second, first);
    await expect(open(new Uint8Array(Buffer.from(old, "latin1")))).rejects.toThrow(
      /"torchao.dtypes.affine_q.AffineQuantizedTensor" .*of version 1 of TorchAO's configurations: quantize the float weights again/,
    );
  });

  it("views in another order are refused", async () => {
    const tensors = await open(bytesOf("transposed"));
    expect(() => tensors.info("matrix")).toThrow(/is a view that is not contiguous/);
  });

  it("what is no zip is refused", async () => {
    await expect(open(new Uint8Array(100))).rejects.toThrow(/expected a zip archive/);
    await expect(open(new Uint8Array(0))).rejects.toThrow(/expected a zip archive/);
  });

  it("cut or damaged files are errors of this package, or are read", async () => {
    const random = new Random(3);
    const good = bytesOf("state");
    const check = async (bytes: Uint8Array) => {
      try {
        const tensors = await open(bytes);
        for (const name of tensors.names) await tensors.read(name);
      } catch (error) {
        if (!(error instanceof LowbitError)) throw error;
      }
    };
    for (let i = 0; i < 100; i++) await check(good.slice(0, random.integer(0, good.length - 1)));
    for (let i = 0; i < 1500; i++) {
      const bytes = good.slice();
      for (let change = 0; change < 4; change++) bytes[random.integer(0, bytes.length - 1)] = random.integer(0, 255);
      await check(bytes);
    }
  });
});
