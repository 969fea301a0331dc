/** Steps in an engine's memory, as its threads run them: records of phases, their arguments, and the array of times. */
import { type KernelCode, setAddress, type WasmPhase, type WasmStep } from "../kernel-code.ts";
import { type PlacedPlan, record } from "./runner.ts";

/** What a plan needs of an engine. */
export interface StepPlace {
  allocate(byteLength: number): Uint8Array;
  /** Table index of a function. */
  indexOf(code: KernelCode): number;
}

export class StepPlan {
  readonly placed: PlacedPlan;
  readonly #place: StepPlace;
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  /** Index of the first phase of each step, and at the end the number of all phases. */
  readonly #first: readonly number[];
  readonly #phases: readonly { readonly argsAt: number; readonly argsBytes: number }[];
  readonly #tiles: Int32Array;

  constructor(steps: readonly WasmStep[], place: StepPlace) {
    this.#place = place;
    const phases = steps.flatMap(({ phases }) => phases);
    const first = [0];
    for (const step of steps) first.push(first.at(-1)! + step.phases.length);
    const times = record.bytes * phases.length;
    let argsAt = times + 8 * steps.length;
    this.#phases = phases.map(({ args }) => {
      argsAt += args.length;
      return { argsAt: argsAt - args.length, argsBytes: args.length };
    });
    this.#first = first;
    this.#tiles = new Int32Array(phases.length);
    this.#bytes = place.allocate(argsAt);
    const { buffer, byteOffset: address, byteLength } = this.#bytes;
    this.#view = new DataView(buffer, address, byteLength);
    this.placed = { address, phases: phases.length, times: address + times };
    for (const [index, step] of steps.entries()) {
      for (let phase = first[index]!; phase < first[index + 1]!; phase++) {
        this.#view.setInt32(record.bytes * phase + record.step, index, true);
        setAddress(this.#view, record.bytes * phase + record.args, address + this.#phases[phase]!.argsAt);
      }
      this.setStep(index, step);
    }
    this.finish();
  }

  /** Whether a step fits in the place of another: its phases have arguments of the same sizes. */
  fits(index: number, { phases }: WasmStep): boolean {
    const first = this.#first[index]!;
    const isSame = ({ args }: WasmPhase, i: number) => args.length === this.#phases[first + i]!.argsBytes;
    return phases.length === this.#first[index + 1]! - first && phases.every(isSame);
  }

  setStep(index: number, { phases }: WasmStep): void {
    for (const [i, { code, tiles, args }] of phases.entries()) {
      const phase = this.#first[index]! + i;
      this.#view.setInt32(record.bytes * phase + record.code, this.#place.indexOf(code), true);
      this.#tiles[phase] = tiles;
      this.#bytes.set(args, this.#phases[phase]!.argsAt);
    }
  }

  setTiles(index: number, phase: number, tiles: number): void {
    this.#tiles[this.#first[index]! + phase] = tiles;
  }

  /** Sets eight bytes of a phase's arguments: an address, or a non-negative integer. */
  setArgument(index: number, phase: number, at: number, value: number): void {
    setAddress(this.#view, this.#phases[this.#first[index]! + phase]!.argsAt + at, value);
  }

  /** Completes the plan once all steps are set: counts the one-tile phases that directly follow each one-tile phase. */
  finish(): void {
    let followers = 0;
    for (let phase = this.#tiles.length - 1; phase >= 0; phase--) {
      const tiles = this.#tiles[phase]!;
      followers = tiles === 1 && this.#tiles[phase + 1] === 1 ? followers + 1 : 0;
      const at = record.bytes * phase;
      this.#view.setInt32(at + record.followers, followers, true);
      this.#view.setInt32(at + record.tiles, tiles, true);
    }
  }
}
