/** Terminals of Lark's library `common`, which grammars import, as regular expressions. */
const INT = "[0-9]+";
const DECIMAL = `(?:${INT}\\.(?:${INT})?|\\.${INT})`;
const EXPONENT = `[eE][+-]?${INT}`;
const FLOAT = `(?:${INT}${EXPONENT}|${DECIMAL}(?:${EXPONENT})?)`;
const NUMBER = `(?:${FLOAT}|${INT})`;

export const COMMON_TERMINALS: Readonly<Record<string, string>> = {
  ...{ DIGIT: "[0-9]", HEXDIGIT: "[0-9a-fA-F]", INT, SIGNED_INT: `[+-]?${INT}`, DECIMAL },
  ...{ FLOAT, SIGNED_FLOAT: `[+-]?${FLOAT}`, NUMBER, SIGNED_NUMBER: `[+-]?${NUMBER}` },
  ...{ LCASE_LETTER: "[a-z]", UCASE_LETTER: "[A-Z]", LETTER: "[a-zA-Z]", WORD: "[a-zA-Z]+", CNAME: "[_a-zA-Z]\\w*" },
  ...{ ESCAPED_STRING: '"(?:[^"\\\\\\n]|\\\\[^\\n])*"' },
  ...{ WS_INLINE: "[ \\t]+", WS: "[ \\t\\f\\r\\n]+", CR: "\\r", LF: "\\n", NEWLINE: "(?:\\r?\\n)+" },
  ...{ SH_COMMENT: "#[^\\n]*", CPP_COMMENT: "//[^\\n]*", SQL_COMMENT: "--[^\\n]*" },
  ...{ C_COMMENT: "/\\*(?:[^*]|\\*+[^*/])*\\*+/" },
};
