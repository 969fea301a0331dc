#!/usr/bin/env node
/** The `lowbit` program: runs the command line, which scripts/package/join.js makes one script of. */
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { programCache } from "../tools/index.ts";
import type * as commandLine from "./command-line.ts";
import { CompiledScript } from "./compiled-script.ts";

const [first = ""] = process.argv.slice(2);
const command = /^[a-z]+$/.test(first) ? first : "lowbit";
const path = fileURLToPath(new URL("command-line.cjs", import.meta.url));
const script = new CompiledScript(path, join(programCache(), "code"), command);
const { runProcess } = script.run() as typeof commandLine;
// Not process.exit, which would lose output that a pipe has not taken yet.
process.exitCode = await runProcess();
// A name that is no command is none here either.
if (process.exitCode !== 2) script.keep();
