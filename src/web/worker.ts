/** The worker's entry: bundled with all it needs into worker-bundle.js. */
import "lowbit/aqlm/register";
import type { Port } from "./protocol.ts";
import { serveModel } from "./serve.ts";

serveModel(globalThis as unknown as Port);
