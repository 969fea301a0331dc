/** Encodings that other packages add: quantization modes whose weights have a format of their own, such as AQLM. */
import { InvalidArgumentError } from "../errors.ts";
import type { AbortOptions, Model } from "./model.ts";

/** How the layers of a model are encoded. */
export interface EncodingOptions extends AbortOptions {
  /** Text whose activations weight the errors; without one, errors of all weights count alike. */
  readonly calibrationText?: string | undefined;
  /** Tokens of the text that are read. Default 4096. */
  readonly calibrationTokens?: number | undefined;
  /** Whether to leave a layer as it is, by the name of its weight. */
  skip?(name: string): boolean;
  /** Folder for finished layers. Layers there that were made with the same options are not computed again. */
  readonly folder?: string | undefined;
  /** Called as layers are encoded, with weights done and weights in all; the rounds within a layer count in part. */
  onProgress?(doneWeights: number, totalWeights: number): void;
  /** Called with the reason when a damaged or changed layer in `folder` is encoded again. */
  onDamagedPart?(notice: string): void;
}

/** An encoding; `registerWeightEncoding` adds its modes to the command line. */
export interface WeightEncoding<Mode = unknown> {
  /** Modes of the encoding, for messages, such as "aqlm-{1..16}x{1..16}". */
  readonly modes: string;
  /** Parses a mode's name; null for names of other encodings. InvalidArgumentError for a bad one. */
  parse(qmode: string): Mode | null;
  /**
   * Whether the model's checkpoint has weights of the mode already. InvalidArgumentError when it has them in another mode.
   */
  isStored(model: Model, mode: Mode): boolean;
  /** Encodes the linear layers of a model except the head: all, or none when this fails. */
  encode(model: Model, mode: Mode, options: EncodingOptions): Promise<void>;
}

/** An encoding with one of its modes. */
export interface ChosenEncoding {
  /**
   * Whether the model's checkpoint has weights of the mode already. InvalidArgumentError when it has them in another mode.
   */
  isStored(model: Model): boolean;
  /** Encodes the linear layers of a model except the head: all, or none when this fails. */
  encode(model: Model, options: EncodingOptions): Promise<void>;
}

/** Functions from a mode's name to the encoding, by the encodings' modes. */
const choices = new Map<string, (qmode: string) => ChosenEncoding | null>();

/** Adds an encoding. InvalidArgumentError when its modes are taken. */
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

/** Modes of the registered encodings, for messages. */
export function encodingModes(): readonly string[] {
  return [...choices.keys()];
}

/**
 * The encoding of a quantization mode; null for modes of none. InvalidArgumentError for a mode that its encoding refuses.
 */
export function encodingOf(qmode: string): ChosenEncoding | null {
  for (const choose of choices.values()) {
    const chosen = choose(qmode);
    if (chosen) return chosen;
  }
  return null;
}
