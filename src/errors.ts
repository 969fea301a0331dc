/** The errors lowbit throws. Every message names the argument or file, what was expected and what was found. */

/** Most characters of a message, since names and lists from files can be of any length. */
const MESSAGE_MAX = 4000;

/** A message with control characters, which could steer a terminal, as escapes, and without its middle where it is long. */
function shown(message: string): string {
  const half = MESSAGE_MAX / 2;
  const left = message.length - MESSAGE_MAX;
  const short = left <= 0 ? message : `${message.slice(0, half)} … ${left} characters … ${message.slice(-half)}`;
  return short.replace(
    /(?![\n\t])\p{Cc}/gu,
    (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`,
  );
}

/** Base class of all errors that are thrown on purpose; any other error from the library is a bug. */
export class LowbitError extends Error {
  override readonly name: string = this.constructor.name;

  constructor(message = "", options?: ErrorOptions) {
    super(shown(message), options);
  }
}

/** A file is missing, truncated, or does not hold what its format promises. */
export class InvalidFileError extends LowbitError {
  /** Path or name of the file. */
  readonly file: string;
  constructor(file: string, problem: string, options?: ErrorOptions) {
    super(`${file || '""'}: ${problem}`, options);
    this.file = file;
  }
}

/**
 * A chat template or tokenizer needs more work than its limits allow. The message names the limit; `limits` of
 * `LanguageModel.template` and `LanguageModel.tokenizer` set it for trusted models.
 */
export class LimitError extends InvalidFileError {}

/** An argument or option is out of its range. */
export class InvalidArgumentError extends LowbitError {}

/** Tensor shapes or dtypes do not fit each other or the operator. */
export class ShapeError extends LowbitError {}

/** A well-formed request that this version cannot serve; the message lists what it can. */
export class UnsupportedError extends LowbitError {
  /** The file whose contents are not supported; null where a call's arguments are not, or where the file is not known. */
  readonly file: string | null;
  constructor(message = "", { file = null, ...options }: ErrorOptions & { file?: string | null } = {}) {
    super(message, options);
    this.file = file;
  }
}

/** The prompt and the requested tokens do not fit the context length of the program. */
export class ContextLengthError extends LowbitError {}
