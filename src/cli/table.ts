/** Formats tables and sizes for people. */

const isNumeric = (cell: string | number): boolean => /^-?\d+(\.\d+)?$/.test(String(cell));

/** Formats rows in aligned columns, two spaces apart, numbers to the right. The first row is the heading. */
export function formatTable(rows: readonly (readonly (string | number)[])[]): string {
  const columns = rows[0]?.length ?? 0;
  const widths = Array.from({ length: columns }, (_, i) =>
    rows.reduce((most, row) => Math.max(most, String(row[i]).length), 0),
  );
  const isNumber = widths.map((_, i) => rows.length > 1 && rows.slice(1).every((row) => isNumeric(row[i]!)));
  const line = (row: readonly (string | number)[]) =>
    row.map((cell, i) => (isNumber[i] ? String(cell).padStart(widths[i]!) : String(cell).padEnd(widths[i]!)));
  return rows.map((row) => line(row).join("  ").trimEnd()).join("\n");
}

const units = ["bytes", "kB", "MB", "GB", "TB"] as const;

/** Formats bytes in decimal units with three digits: "4.14 MB". */
export function formatBytes(bytes: number): string {
  let unit = 0;
  let value = bytes;
  for (; value >= 999.5 && unit < units.length - 1; unit++) value /= 1000;
  return unit === 0 ? `${bytes} bytes` : `${value.toPrecision(3)} ${units[unit]}`;
}

/** Formats numbers with neighbours as ranges: [1, 2, 3, 8] is "1-3, 8". */
export function formatRanges(numbers: readonly number[]): string {
  const ranges: [number, number][] = [];
  for (const number of numbers) {
    const last = ranges.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else ranges.push([number, number]);
  }
  return ranges.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(", ");
}
