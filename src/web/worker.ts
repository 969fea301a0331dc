/** Entry point of the worker, bundled with its dependencies into worker-bundle.js. */
import "lowbit/aqlm/register";
import type { Port } from "./protocol.ts";
import { serveModel } from "./serve.ts";

serveModel(globalThis as unknown as Port);
