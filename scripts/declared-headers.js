/** C++ of the families that are declared: structs of their arguments, what reads them, and the list of their rows. */

/** @typedef {{ kind: "array", type: "f32" | "i64" | "u8", access: "read" | "write" | "change", sizes: (string | number)[], isOptional: boolean }} ArrayField */
/** @typedef {ArrayField | { kind: "number", type: string } | { kind: "choice", choices: string[] }} Field */
/** @typedef {{ folder: string, family: string, fields: Record<string, Field>, by: "rows" | "elements" }} Declared */

const elementTypes = { f32: "float", i64: "int64_t", u8: "uint8_t" };

const snake = (/** @type {string} */ name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const pascal = (/** @type {string} */ name) => name.replace(/(?:^|_)([a-z0-9])/g, (_, letter) => letter.toUpperCase());

/** Sizes that arrays name, in the order of `sizeNames` in src/kernels/declaration.ts. @param {Declared["fields"]} fields */
function sizesOf(fields) {
  const all = Object.values(fields).flatMap((field) => (field.kind === "array" ? field.sizes : []));
  return [...new Set(all.filter((size) => typeof size === "string"))].map(String);
}

/** C++ of a field's type. @param {Exclude<Field, ArrayField>} field */
const numberType = (field) => (field.kind === "number" ? field.type : "uint32_t");

/** Numbers of the words of a choice, and the function that gives a call's. @param {Pick<Declared, "family" | "fields">} declared */
function choices({ family, fields }) {
  return Object.entries(fields).flatMap(([name, field]) => {
    if (field.kind !== "choice") return [];
    const space = `${family}_${snake(name)}`;
    const words = field.choices.map((choice) => `k${choice[0].toUpperCase()}${choice.slice(1)}`);
    return [
      `namespace ${space} {`,
      ...[...words, "kCount"].map((word, i) => `constexpr uint32_t ${word} = ${i};`),
      `}  // namespace ${space}`,
      "",
      `static inline uint32_t choice_of(const ${pascal(family)}Args& args) { return args.${snake(name)}; }`,
      "",
    ];
  });
}

/** A struct and the function that reads it, with numbers in the order of `nativeOrder`. @param {Declared} declared */
function reader({ family, fields }) {
  const type = `${pascal(family)}Args`;
  const entries = Object.entries(fields);
  const arrays = /** @type {[string, ArrayField][]} */ (entries.filter(([, { kind }]) => kind === "array"));
  const numbers = /** @type {[string, Exclude<Field, ArrayField>][]} */ (
    entries.filter(([, { kind }]) => kind !== "array")
  );
  const pointer = (/** @type {ArrayField} */ field) =>
    `${field.access === "read" ? "const " : ""}${elementTypes[field.type]}`;
  const shape = (/** @type {ArrayField} */ { sizes, isOptional }) =>
    `[${sizes.map((size) => snake(String(size))).join(", ")}]${isOptional ? ", or null" : ""}`;
  let scalar = sizesOf(fields).length;
  let buffer = 0;
  const reads = sizesOf(fields).map((name, i) => `args.${snake(name)} = scalar_of<size_t>(call, ScalarIndex{${i}});`);
  for (const [name, field] of entries) {
    const to = `args.${snake(name)}`;
    if (field.kind !== "array") reads.push(`${to} = scalar_of<${numberType(field)}>(call, ScalarIndex{${scalar++}});`);
    else {
      const value = `buffer_of<${pointer(field)}>(call, BufferIndex{${buffer++}})`;
      reads.push(
        field.isOptional
          ? `${to} = scalar_of<bool>(call, ScalarIndex{${scalar++}}) ? ${value} : nullptr;`
          : `${to} = ${value};`,
      );
    }
  }
  return [
    `struct ${type} {`,
    ...arrays.flatMap(([name, field]) => [`  // ${shape(field)}`, `  ${pointer(field)}* ${snake(name)};`]),
    `  size_t ${sizesOf(fields).map(snake).join(", ")};`,
    ...numbers.flatMap(([name, field]) => [
      ...(field.kind === "choice" ? [`  // A number of ${family}_${snake(name)}.`] : []),
      `  ${numberType(field)} ${snake(name)};`,
    ]),
    "};",
    "",
    `static inline void read_arguments(const Call& call, ${type}& args) {`,
    ...reads.map((line) => `  ${line}`),
    "}",
    "",
    ...choices({ family, fields }),
  ];
}

/** @param {string} what @param {string[]} includes */
const heading = (what, includes) => [
  `// ${what}. Written by \`npm run families\` from src/kernels/families/.`,
  "#pragma once",
  "",
  ...includes.map((file) => `#include "${file}"`),
  "",
];

/** Files by their names. @param {Declared[]} families @returns {[string, string][]} */
export function declaredHeaders(families) {
  const readers = families.flatMap(reader);
  const entries = families.map(
    ({ family, by }) => `  ROW("${family}", target, lanes, needs, ${by}_prepare<Isa, ${pascal(family)}>)`,
  );
  const macro = [
    "#define LOWBIT_DECLARED_ROWS(ROW, Isa, target, lanes, needs)",
    ...entries.map((line, i) => line + (i + 1 < entries.length ? "," : "")),
  ];
  const width = Math.max(...macro.map(({ length }) => length)) + 1;
  const includes = families.map(({ folder, family }) => `${folder}/${family}.h`).sort();
  return [
    [
      "native/families/arguments.h",
      [
        ...heading("The arguments of families of kernels", ["../kernel.h"]),
        ...["namespace lowbit {", "", ...readers, "}  // namespace lowbit", ""],
      ].join("\n"),
    ],
    [
      "native/families/rows.h",
      [
        ...heading("Rows of families for each instruction set", includes),
        "// clang-format off",
        ...macro.map((line, i) => (i + 1 < macro.length ? `${line.padEnd(width)}\\` : line)),
        "// clang-format on",
        "",
      ].join("\n"),
    ],
  ];
}
