/** Packs into the panel layouts with native code, on all cores: the same bytes as `layout/panels.ts` makes. */
import type { QuantizedWeights, WeightSpec } from "../../../quantized.ts";
import type { Cpu, Kernel, LayoutPacker, PackedLayout, PackTarget } from "../../contract.ts";
import { hostCpu } from "../../cpu.ts";
import { HEADER_BYTES, writeHeader } from "../../layout/header.ts";
import { startPacking } from "../../layout/packed.ts";
import { panelGeometry } from "../../layout/panel-geometry.ts";
import { checkFactors } from "../../layout/panel-packer.ts";
import { defaultThreads } from "../../plan.ts";
import { kernelRefusal } from "../../select.ts";
import type { QuantizePackArgs } from "./fields.ts";
import { quantizePack } from "./kernels.ts";

/** Makes a buffer for weights of this spec and a packer that fills it, native if possible. */
export function startFastPacking(
  spec: WeightSpec,
  bias: Float32Array | null,
  layout: PackedLayout,
): { packer: LayoutPacker; target: Uint8Array } {
  const { target } = startPacking(spec, bias, layout);
  return { packer: fastPacker(layout, { spec, bias, target }), target };
}

/** A packer of weights into a layout on a CPU, native if possible. */
export function fastPacker(layout: PackedLayout, target: PackTarget, cpu: Cpu = hostCpu()): LayoutPacker {
  const query = { layout: layout.name, bits: target.spec.bits, m: 1 };
  const kernel = quantizePack.find((candidate) => kernelRefusal(candidate, query, cpu) === null);
  return kernel ? new NativePacker(kernel, { ...target, layout }) : layout.packer(target);
}

interface Packing extends PackTarget {
  readonly layout: PackedLayout;
}

class NativePacker implements LayoutPacker {
  readonly #kernel: Kernel<QuantizePackArgs>;
  readonly #packing: Packing;
  readonly #negative = new Int32Array(1);
  #levels: Int8Array | null = null;

  constructor(kernel: Kernel<QuantizePackArgs>, packing: Packing) {
    this.#kernel = kernel;
    this.#packing = packing;
  }

  add(part: QuantizedWeights, firstRow: number): void {
    const { spec, bias, layout, target } = this.#packing;
    checkFactors(part);
    const { panelBytes } = panelGeometry(layout.nr, spec, bias !== null);
    const start = HEADER_BYTES + (firstRow / layout.nr) * panelBytes;
    const panels = target.subarray(start, start + Math.ceil(part.n / layout.nr) * panelBytes);
    const args = { part, hasBias: bias !== null, panels, negative: this.#negative };
    this.#levels = part.levels;
    this.#kernel.bind(args, new Uint8Array(0), defaultThreads())();
  }

  finish(): void {
    const { spec, bias, layout, target } = this.#packing;
    const { firstPanel, panelBytes, biasOffset } = panelGeometry(layout.nr, spec, bias !== null);
    const view = new DataView(target.buffer, target.byteOffset, target.length);
    bias?.forEach((value, row) => {
      const panel = firstPanel + Math.floor(row / layout.nr) * panelBytes;
      view.setFloat32(panel + biasOffset + 4 * (row % layout.nr), value, true);
    });
    const mark = this.#negative[0] === 0 ? 1 : 0;
    writeHeader(target, layout, { spec, hasBias: bias !== null, levels: this.#levels, mark });
  }
}
