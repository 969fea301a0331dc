/** Runs commands of the CLI inside the test process, on streams in memory. */
import { Readable, Writable } from "node:stream";
import { runCli } from "../../src/cli/commands.ts";
import { Terminal } from "../../src/cli/terminal.ts";

/** Keeps what is written; `isTTY` as told. */
class Capture extends Writable {
  text = "";
  readonly isTTY: boolean;

  constructor(isTTY: boolean) {
    super();
    this.isTTY = isTTY;
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.text += chunk.toString();
    done();
  }
}

export interface CommandResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CommandOptions {
  readonly stdin?: string | Readable;
  readonly isTTY?: boolean;
  /** Called with the terminal before the command runs, to interrupt it later. */
  readonly watch?: (terminal: Terminal) => void;
}

/** The exit code and output of `lowbit ...argv`. */
export async function lowbit(argv: readonly string[], options: CommandOptions = {}): Promise<CommandResult> {
  const { stdin = "", isTTY = false, watch } = options;
  const input = typeof stdin === "string" ? Readable.from(stdin === "" ? [] : [stdin]) : stdin;
  const stdout = new Capture(isTTY);
  const stderr = new Capture(isTTY);
  const terminal = new Terminal({ stdin: Object.assign(input, { isTTY }), stdout, stderr });
  watch?.(terminal);
  const code = await runCli(argv, terminal);
  return { code, stdout: stdout.text, stderr: stderr.text };
}
