/** Checks while a program is still downloaded whether it can run here, by the part that has come. */

import { UnsupportedError } from "../errors.ts";
import { checkProgramMemory } from "../language/language-model.ts";
import { readProgram } from "../program/read.ts";
import { ArrivingFile } from "./arriving-file.ts";

/** The check of one file, whose bytes it is given in order. */
export class HeadCheck {
  readonly #file: ArrivingFile;

  /**
   * `totalBytes`: 0 where it is not known; `refuse` gets an UnsupportedError as soon as it is known that the program
   * cannot run here.
   */
  constructor(name: string, totalBytes: number, refuse: (error: UnsupportedError) => void) {
    this.#file = new ArrivingFile(name, totalBytes);
    readProgram(this.#file)
      .then(checkProgramMemory)
      .catch((error) => {
        // Other errors are raised when the file is loaded.
        if (error instanceof UnsupportedError) refuse(error);
      })
      .finally(() => void this.#file.close());
  }

  take(bytes: Uint8Array): void {
    void this.#file.append(bytes);
  }
}
