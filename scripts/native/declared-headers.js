/** Generates C++ of declared families: structs of their arguments, functions that read and write them, the list of kernels. */

/** @typedef {{ kind: "array", type: string, access: "read" | "write" | "change", sizes: (string | number)[] | null, isOptional: boolean }} ArrayField */
/** @typedef {{ kind: "number", type: string } | { kind: "numbers", type: string, count: number } | { kind: "choice", choices: string[] }} NumberField */
/**
 * A family, or arguments that several share: `fields` are plain, and `sizes` the numbers that their arrays name beside them.
 * @typedef {{ folder: string, family: string, args: string, fields: Record<string, ArrayField | NumberField>, sizes: string[], by?: "rows" | "elements" }} Declared
 */

const elementTypes = {
  ...{ f32: "float", i64: "int64_t", u64: "uint64_t", i32: "int32_t", u32: "uint32_t", i8: "int8_t", u8: "uint8_t" },
  any: "void",
};

const snake = (/** @type {string} */ name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const pascal = (/** @type {string} */ name) => name.replace(/(?:^|_)([a-z0-9])/g, (_, letter) => letter.toUpperCase());
const structOf = (/** @type {string} */ args) => `${pascal(args)}Arguments`;

/** C++ of a field's type. @param {NumberField} field */
const numberType = (field) => (field.kind === "choice" ? "uint32_t" : field.type);

/** Numbers of the words of a choice, and the function that gives a call's. @param {Declared} declared */
function choices({ args, fields }) {
  return Object.entries(fields).flatMap(([name, field]) => {
    if (field.kind !== "choice") return [];
    const space = `${args}_${snake(name)}`;
    const words = [...field.choices.map((choice) => `k${pascal(choice)}`), "kCount"];
    return [
      `namespace ${space} {`,
      ...filled(
        "constexpr uint32_t ",
        words.map((word, i) => `${word} = ${i}`),
        ";",
        " ".repeat(19),
      ),
      `}  // namespace ${space}`,
      "",
    ];
  });
}

/** The function by whose number code of a family is chosen. @param {Declared} declared */
function chooser({ args, fields, by }) {
  const name = Object.keys(fields).find((field) => fields[field].kind === "choice");
  if (!by || !name) return [];
  return [`static inline uint32_t choice_of(const ${structOf(args)}& args) { return args.${snake(name)}; }`, ""];
}

/** Lines of a list between a beginning and an end, as clang-format fills them. @param {string} begin @param {string[]} list @param {string} end @param {string} indent */
function filled(begin, list, end, indent) {
  const lines = [begin];
  for (const [i, item] of list.entries()) {
    const text = item + (i + 1 < list.length ? "," : end);
    const isFirst = lines.length === 1 && lines[0] === begin;
    const joined = `${lines.at(-1)}${isFirst ? "" : " "}${text}`;
    if (joined.length <= 120) lines[lines.length - 1] = joined;
    else lines.push(indent + text);
  }
  return lines;
}

/** Lines of a struct's members. @param {Declared} declared */
function members({ args, fields, sizes }) {
  const entries = Object.entries(fields);
  const arrays = entries.flatMap(([name, field]) => {
    if (field.kind !== "array") return [];
    const shape = field.sizes && `[${field.sizes.map((size) => snake(String(size))).join(", ")}]`;
    const notes = [shape, field.isOptional ? "or null" : null]
      .filter((note) => note !== null)
      .join(", ")
      .replace(/^or null/, "Or null.");
    return [...(notes ? [`  // ${notes}`] : []), `  ${pointer(field)}* ${snake(name)};`];
  });
  const numbers = entries.flatMap(([name, field]) => {
    if (field.kind === "array") return [];
    const words = field.kind === "choice" ? [`  // A number of ${args}_${snake(name)}.`] : [];
    const count = field.kind === "numbers" ? `[${field.count}]` : "";
    return [...words, `  ${numberType(field)} ${snake(name)}${count};`];
  });
  return [...arrays, ...(sizes.length > 0 ? [`  size_t ${sizes.map(snake).join(", ")};`] : []), ...numbers];
}

/** @param {ArrayField} field */
const pointer = ({ access, type }) => `${access === "read" ? "const " : ""}${elementTypes[type]}`;

/** A struct and the function that meets its members in the order of `nativeOrder`. @param {Declared} declared */
function struct(declared) {
  const { args, fields, sizes } = declared;
  const entries = Object.entries(fields);
  const sum = (/** @type {(field: ArrayField | NumberField) => number} */ of) =>
    entries.reduce((total, [, field]) => total + of(field), 0);
  const scalars =
    sizes.length +
    sum((field) => (field.kind === "numbers" ? field.count : field.kind !== "array" || field.isOptional ? 1 : 0));
  const buffers = sum(({ kind }) => (kind === "array" ? 1 : 0));
  const met = entries.map(([name, field]) => {
    const member = `args.${snake(name)}`;
    return field.kind === "array" && field.isOptional ? `OrNull{${member}}` : member;
  });
  return [
    ...choices(declared),
    `struct ${structOf(args)} {`,
    ...members(declared),
    "  void* scratch;",
    `  static constexpr uint32_t kScalars = ${scalars}, kBuffers = ${buffers};`,
    "};",
    "",
    "template <class Visitor>",
    `static inline void visit_arguments(${structOf(args)}& args, Visitor& each) {`,
    ...filled("  each(", [...sizes.map((name) => `args.${snake(name)}`), ...met, "args.scratch"], ");", "       "),
    "}",
    "",
    ...chooser(declared),
  ];
}

/** @param {string} what @param {string} from @param {string[]} includes */
const heading = (what, from, includes) => [
  `// ${what}. Written by \`npm run families\` from ${from}.`,
  "#pragma once",
  "",
  ...includes.map((file) => `#include "${file}"`),
  "",
];

/** Files by their names. @param {Declared[]} declared @returns {[string, string][]} */
export function declaredHeaders(declared) {
  const structs = [...new Map(declared.toReversed().map((one) => [one.args, one])).values()].reverse();
  const folders = [...new Set(structs.map(({ folder }) => folder))];
  const divided = declared.filter(({ by }) => by);
  const entries = divided.map(
    ({ family, by }) => `  ROW("${family}", target, lanes, needs, ${by}_prepare<Isa, ${pascal(family)}>)`,
  );
  const macro = [
    "#define LOWBIT_DECLARED_ROWS(ROW, Isa, target, lanes, needs)",
    ...entries.map((line, i) => line + (i + 1 < entries.length ? "," : "")),
  ];
  const width = Math.max(...macro.map(({ length }) => length)) + 1;
  const includes = divided.map(({ folder, family }) => `${folder}/${family}.h`).sort();
  const from = "src/kernels/families/";
  return [
    ...folders.map((name) => {
      const own = structs.filter(({ folder }) => folder === name);
      const text = argumentsHeader(`${from}${name}/`, "../../call_arguments.h", ["lowbit"], own);
      return /** @type {[string, string]} */ ([`native/families/${name}/arguments.h`, text]);
    }),
    [
      "native/families/rows.h",
      [
        ...heading("Rows of families for each instruction set", from, includes),
        "// clang-format off",
        ...macro.map((line, i) => (i + 1 < macro.length ? `${line.padEnd(width)}\\` : line)),
        "// clang-format on",
        "",
      ].join("\n"),
    ],
  ];
}

/** A header of structs. @param {string} from @param {string} include @param {string[]} namespaces @param {Declared[]} declared */
export function argumentsHeader(from, include, namespaces, declared) {
  return [
    ...heading("The arguments of families of kernels", from, [include]),
    ...namespaces.map((name) => `namespace ${name} {`),
    ...["", ...declared.flatMap(struct)],
    ...namespaces.toReversed().map((name) => `}  // namespace ${name}`),
    "",
  ].join("\n");
}
