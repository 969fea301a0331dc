/** Encoders that packages beside this one bring: modes of quantization whose weights have a format of their own. */
import { InvalidArgumentError } from "../errors.ts";
import type { AbortOptions, Model } from "./model.ts";

/** How an encoder goes about the layers of a model. */
export interface EncodingOptions extends AbortOptions {
  /** Text whose activations weigh the errors; without one, errors of weights count alike. */
  readonly calibrationText?: string | undefined;
  /** Tokens of it that are read. Default 4096. */
  readonly calibrationTokens?: number | undefined;
  /** Layers to leave as they are, by the name of their weights. */
  skip?(name: string): boolean;
  /** Folder for finished layers. What it has from before, made with the same options, is not computed again. */
  readonly folder?: string | undefined;
  /** Called as layers are encoded; a layer counts bit by bit, as its rounds go. */
  onProgress?(doneWeights: number, totalWeights: number): void;
  /** Called with why a layer in `folder` that was cut short or changed is encoded again. */
  onDamagedPart?(notice: string): void;
}

/** An encoder; `registerWeightEncoding` makes its modes known to the command line. */
export interface WeightEncoding<Mode = unknown> {
  /** The modes, for messages, such as "aqlm-{1..16}x{1..16}". */
  readonly modes: string;
  /** What the name of a mode says; null for names of others. InvalidArgumentError for a bad one. */
  parse(qmode: string): Mode | null;
  /** Whether the checkpoint of a model has weights of the mode already. InvalidArgumentError when it has them in another. */
  isStored(model: Model, mode: Mode): boolean;
  /** Replaces the linear layers of a model but for the head: all, or none when this fails. */
  encode(model: Model, mode: Mode, options: EncodingOptions): Promise<void>;
}

/** An encoder with one of its modes. */
export interface ChosenEncoding {
  /** Whether the checkpoint of a model has such weights already. InvalidArgumentError when it has them in another mode. */
  isStored(model: Model): boolean;
  /** Replaces the linear layers of a model but for the head: all, or none when this fails. */
  encode(model: Model, options: EncodingOptions): Promise<void>;
}

/** What gives the encoder of a mode, by the names of an encoder's modes. */
const choices = new Map<string, (qmode: string) => ChosenEncoding | null>();

/** Adds an encoder; InvalidArgumentError when its modes are taken. */
export function registerWeightEncoding<Mode>(encoding: WeightEncoding<Mode>): void {
  const { modes } = encoding;
  if (choices.has(modes)) throw new InvalidArgumentError(`weight encoding ${modes} is registered already`);
  choices.set(modes, (qmode) => {
    const mode = encoding.parse(qmode);
    if (mode === null) return null;
    return {
      isStored: (model) => encoding.isStored(model, mode),
      encode: (model, options) => encoding.encode(model, mode, options),
    };
  });
}

/** Modes of the encoders that are there, for messages. */
export function encodingModes(): readonly string[] {
  return [...choices.keys()];
}

/** The encoder of a mode of quantization; null when it is of none. InvalidArgumentError for a mode that an encoder refuses. */
export function encodingOf(qmode: string): ChosenEncoding | null {
  for (const choose of choices.values()) {
    const chosen = choose(qmode);
    if (chosen) return chosen;
  }
  return null;
}
