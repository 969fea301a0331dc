import { it } from "vitest"; it("b", async () => { await import("/tmp/bench.mts"); });
