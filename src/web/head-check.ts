/** Checks during a program's download, from its first part, whether it can run here. */

import { UnsupportedError } from "../errors.ts";
import { checkProgramMemory } from "../language/language-model.ts";
import { readProgram } from "../program/read.ts";
import { ArrivingFile } from "./arriving-file.ts";

/** Checks one file, whose bytes it gets in order. */
export class HeadCheck {
  readonly #file: ArrivingFile;

  /**
   * `totalBytes`: size of the file, 0 if unknown; `refuse` is called with an UnsupportedError as soon as it is certain that the
   * program cannot run here.
   */
  constructor(name: string, totalBytes: number, refuse: (error: UnsupportedError) => void) {
    this.#file = new ArrivingFile(name, totalBytes);
    readProgram(this.#file)
      .then(checkProgramMemory)
      .catch((error) => {
        // Other errors are reported when the file is loaded.
        if (error instanceof UnsupportedError) refuse(error);
      })
      .finally(() => void this.#file.close());
  }

  take(bytes: Uint8Array): void {
    void this.#file.append(bytes);
  }
}
