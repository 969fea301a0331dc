/** How each family's template writes calls, said once more: plain loops, to compare the parsers with. */

/** A call as a template gets it. */
export interface WrittenCall {
  readonly name: string;
  readonly args: Readonly<Record<string, unknown>>;
}

/** A place at which models may write white space, which templates write none at. */
export const PAD = "\ue000";

export interface Family {
  readonly name: string;
  /** As much of a chat template as tells how its model writes. */
  readonly template: string;
  readonly write: (calls: readonly WrittenCall[]) => string;
  /** What a text cannot hold, because it is the end of a call. */
  readonly never?: RegExp;
  /** Whether text may stand behind calls: there is a mark that ends them. */
  readonly isMarked?: boolean;
}

const json = (value: unknown): string => {
  if (Array.isArray(value)) return `[${PAD}${value.map(json).join(`${PAD},${PAD} `)}${PAD}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const members = Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}${PAD}:${PAD} ${json(item)}`);
  return `{${PAD}${members.join(`${PAD},${PAD} `)}${PAD}}`;
};

const python = (value: unknown): string => {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "string") return pythonText(value);
  if (Array.isArray(value)) return `[${value.map(python).join(`,${PAD} `)}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value)
    .map(([key, item]) => `${pythonText(key)}:${PAD} ${python(item)}`)
    .join(`,${PAD} `)}}`;
};

/** As repr() quotes a text. */
function pythonText(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const inner = text.replaceAll("\\", "\\\\").replaceAll(quote, `\\${quote}`);
  return quote + inner.replaceAll("\n", "\\n").replaceAll("\t", "\\t").replaceAll("\r", "\\r") + quote;
}

const gemma =
  (quote: string) =>
  (value: unknown): string => {
    if (typeof value === "string") return quote + value + quote;
    if (Array.isArray(value)) return `[${PAD}${value.map(gemma(quote)).join(`${PAD},${PAD}`)}${PAD}]`;
    if (typeof value !== "object" || value === null) return JSON.stringify(value);
    const members = Object.entries(value).map(([key, item]) => `${key}:${PAD}${gemma(quote)(item)}`);
    return `{${PAD}${members.join(`${PAD},${PAD}`)}${PAD}}`;
  };

const object = ({ name, args }: WrittenCall, key = "arguments") =>
  `{${PAD}"name"${PAD}:${PAD} ${JSON.stringify(name)}${PAD},${PAD} "${key}": ${json(args)}${PAD}}`;

const tagged = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));

const xml = (open: string, close: string, line: string) => (calls: readonly WrittenCall[]) =>
  calls
    .map(({ name, args }) => {
      const parameters = Object.entries(args).map(
        ([key, value]) => `${PAD}<parameter=${key}>${line}${tagged(value)}${line}</parameter>${PAD}\n`,
      );
      return `${open}${PAD}\n<function=${name}>\n${parameters.join("")}${PAD}</function>${PAD}\n${close}`;
    })
    .join("\n");

const pythonic = (calls: readonly WrittenCall[]) =>
  calls.map(({ name, args }) => {
    const values = Object.entries(args).map(([key, value]) => `${key}${PAD}=${PAD}${python(value)}`);
    return `${name}(${PAD}${values.join(`${PAD},${PAD} `)}${PAD})`;
  });

const each =
  (write: (call: WrittenCall, index: number) => string, between = "") =>
  (calls: readonly WrittenCall[]) =>
    calls.map(write).join(between);

/** Ends of values, and beginnings of parameters: behind one, an end within a later value is that of the first. */
const XML_END = /<parameter=|<\/parameter>\s*(<\/function>|<\/tool_call>|$)/;
const gemmaCall = (start: string, end: string, quote: string) =>
  each(({ name, args }) => `${start}${PAD}call:${name}${gemma(quote)(args)}${PAD}${end}`);

export const families: readonly Family[] = [
  {
    name: "Hermes",
    template: "tools <tool_call> </tool_call>",
    write: each((call) => `<tool_call>\n${PAD}${object(call)}${PAD}\n</tool_call>`, "\n"),
    isMarked: true,
  },
  {
    name: "Granite",
    template: "tools <|tool_call|>",
    write: (calls) => `<|tool_call|>${PAD}[${calls.map((call) => object(call)).join(`${PAD},${PAD} `)}${PAD}]`,
  },
  {
    name: "Command",
    template: "tools <|START_ACTION|>",
    write: (calls) => {
      const one = ({ name, args }: WrittenCall, index: number) =>
        `    {"tool_call_id": "${index}", "tool_name": ${JSON.stringify(name)}, "parameters": ${json(args)}}`;
      return `<|START_ACTION|>[\n${calls.map(one).join(",\n")}\n]${PAD}<|END_ACTION|>`;
    },
    isMarked: true,
  },
  {
    name: "Qwen3-Coder",
    template: "tools <tool_call> <function= <parameter=",
    write: xml("<tool_call>", "</tool_call>", "\n"),
    never: XML_END,
    isMarked: true,
  },
  {
    name: "Seed-OSS",
    template: "tools <seed:tool_call> <function= <parameter=",
    write: xml("<seed:tool_call>", "</seed:tool_call>", ""),
    never: XML_END,
    isMarked: true,
  },
  {
    name: "GLM",
    template: "tools <tool_call> <arg_key>",
    write: each(({ name, args }) => {
      const values = Object.entries(args).map(
        ([key, value]) => `${PAD}<arg_key>${key}</arg_key>${PAD}<arg_value>${tagged(value)}</arg_value>`,
      );
      return `<tool_call>${name}${PAD}${values.join("")}${PAD}</tool_call>`;
    }),
    never: /<\/arg_value>\s*(<arg_key>|<\/tool_call>|$)/,
    isMarked: true,
  },
  {
    name: "FunctionGemma",
    template: "tools <start_function_call>",
    write: gemmaCall("<start_function_call>", "<end_function_call>", "<escape>"),
    never: /<escape>\s*[,}\]]/,
    isMarked: true,
  },
  {
    name: "Gemma 4",
    template: "tools <|tool_call>",
    write: gemmaCall("<|tool_call>", "<tool_call|>", '<|"|>'),
    never: /<\|"\|>\s*[,}\]]/,
    isMarked: true,
  },
  {
    name: "LFM2",
    template: "tools <|tool_call_start|>",
    write: (calls) => `<|tool_call_start|>[${pythonic(calls).join(`,${PAD} `)}${PAD}]<|tool_call_end|>`,
    isMarked: true,
  },
  {
    name: "OLMo 3",
    template: "tools <function_calls>",
    write: (calls) => `<function_calls>${pythonic(calls).join("\n")}</function_calls>`,
    isMarked: true,
  },
  {
    name: "Llama 4",
    template: "tools",
    write: (calls) => `[${pythonic(calls).join(`,${PAD} `)}${PAD}]`,
  },
  {
    name: "Llama 3",
    template: 'tools "parameters": dictionary',
    write: each((call) => object(call, "parameters"), "; "),
  },
  {
    name: "Mistral, lists",
    template: "tools [TOOL_CALLS]",
    write: (calls) => `[TOOL_CALLS]${PAD} [${calls.map((call) => object(call)).join(`${PAD},${PAD} `)}${PAD}]`,
  },
  {
    name: "Mistral, names",
    template: "tools [TOOL_CALLS] [ARGS]",
    write: each(({ name, args }) => `[TOOL_CALLS]${name}[ARGS]${PAD}${json(args)}`),
  },
  {
    name: "DeepSeek R1",
    template: "tools <｜tool▁calls▁begin｜> <｜tool▁call▁begin｜> ```json",
    write: (calls) =>
      `<｜tool▁calls▁begin｜>${calls
        .map(
          ({ name, args }) =>
            `<｜tool▁call▁begin｜>function<｜tool▁sep｜>${name}\n\`\`\`json\n${json(args)}\n\`\`\`${PAD}<｜tool▁call▁end｜>`,
        )
        .join("\n")}${PAD}<｜tool▁calls▁end｜>`,
    isMarked: true,
  },
  {
    name: "DeepSeek V3.1",
    template: "tools <｜tool▁calls▁begin｜> <｜tool▁call▁begin｜>",
    write: (calls) =>
      `<｜tool▁calls▁begin｜>${calls
        .map(({ name, args }) => `<｜tool▁call▁begin｜>${name}<｜tool▁sep｜>${json(args)}<｜tool▁call▁end｜>`)
        .join("")}${PAD}<｜tool▁calls▁end｜>`,
    isMarked: true,
  },
  {
    name: "Kimi",
    template: "tools <|tool_calls_section_begin|>",
    write: (calls) =>
      `<|tool_calls_section_begin|>${calls
        .map(
          ({ name, args }, index) =>
            `<|tool_call_begin|>functions.${name}:${index}<|tool_call_argument_begin|>${json(args)}${PAD}<|tool_call_end|>`,
        )
        .join("")}${PAD}<|tool_calls_section_end|>`,
    isMarked: true,
  },
  {
    name: "gpt-oss",
    template: "tools <|channel|> <|message|>",
    write: each(
      ({ name, args }) =>
        `<|channel|>commentary to=functions.${name} <|constrain|>json<|message|>${PAD}${json(args)}<|call|>`,
    ),
  },
];
