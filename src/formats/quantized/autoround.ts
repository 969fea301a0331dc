/**
 * Reads AutoRound's own format: GPTQ's or AWQ's layout by `packing_format`, and other bits for some modules by `extra_config`.
 */
import { gemmMatrices } from "./awq.ts";
import type { QuantizedFormat } from "./files.ts";
import { bitsOf, gptqMatrices, groupSizeOf } from "./gptq.ts";
import { unknownName } from "./scales.ts";

const GPTQ = ["auto_round:auto_gptq", "auto_round:gptq"];
const AWQ = ["auto_round:auto_awq", "auto_round:awq"];
const OWN = "auto_round";

export const autoRound: QuantizedFormat = {
  name: "AutoRound",
  methods: ["auto-round", "intel/auto-round", "auto_round", "autoround"],
  async read(files) {
    const { extra_config: extra } = files.settings;
    const named = files.text("packing_format") ?? "auto";
    const format = named === "auto" ? GPTQ[0]! : named;
    if (![...GPTQ, ...AWQ, OWN].includes(format))
      throw unknownName(files, "packing_format", [GPTQ[0]!, AWQ[0]!, OWN], format);
    const type = files.text("data_type") ?? "int";
    if (type !== "int") throw unknownName(files, "data_type", ["int"], type);
    const hasOverrides = typeof extra === "object" && extra !== null && Object.keys(extra).length > 0;
    const rules = { method: "AutoRound", bits: bitsOf(files), groupSize: groupSizeOf(files), hasOverrides };
    if (AWQ.includes(format)) return gemmMatrices(files, rules);
    return gptqMatrices(files, {
      ...rules,
      symmetric: files.boolean("sym", true) && !hasOverrides,
      zeroOffset: format === OWN ? 0 : 1,
    });
  },
};
