/**
 * Draws a chart for each class of CPUs from the reports in results/: prompts and decoding beside node-llama-cpp, and sequences
 * that run together. `node bench/speed-charts.js` → docs/speed-*.svg
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";

/** Classes by the ending of their reports. */
const classes = { "": "amx", "-avx2": "avx2", "-avx512-vnni": "avx512-vnni" };
const titles = { amx: "Intel with AMX", avx2: "AMD with AVX2", "avx512-vnni": "AMD with AVX-512 VNNI" };
const OURS = "#1f5f4a";
const THEIRS = "#b0b5b8";
const WIDTH = 760;
const LEFT = 170;
const BAR = 16;

/** Rows of the table under a heading of a report, each by the names of its columns. @param {string} file @param {string} heading */
function tableOf(file, heading) {
  const section = readFileSync(file, "utf8").split(`## ${heading}\n`)[1]?.split("\n## ")[0] ?? "";
  const [names, , ...rows] = section
    .split("\n")
    .filter((line) => line.startsWith("|"))
    .map((line) =>
      line
        .slice(1, -1)
        .split("|")
        .map((cell) => cell.trim()),
    );
  return (rows ?? []).map((row) => Object.fromEntries(names.map((name, i) => [name, row[i]])));
}

/** What both engines did: a label, ours and theirs in tokens a second. @param {string} ending @returns {[string, number, number][]} */
function figuresOf(ending) {
  const peers = new URL(`results/peers${ending}.md`, import.meta.url);
  const sequences = new URL(`results/sequences${ending}.md`, import.meta.url);
  const alone = tableOf(peers, "Prefill and decode")
    .filter((row) => row.threads === "2")
    .map((row) => [row["tok/s"], Number(row["4-bit g32"]), Number(row["node-llama-cpp Q4_0"])]);
  const together = existsSync(sequences)
    ? tableOf(sequences, "Together").map((row) => [
        `${row.sequences} at once`,
        Number(row["tokens a second"]),
        Number(row["node-llama-cpp"]),
      ])
    : [];
  const all = [...alone, ...together];
  for (const row of all)
    if (!row.slice(1).every(Number.isFinite)) throw new Error(`${peers}: expected figures in ${row}`);
  return all;
}

/** @param {string} name @param {[string, number, number][]} figures */
function chart(name, figures) {
  const height = 70 + figures.length * (2 * BAR + 14);
  const room = WIDTH - LEFT - 130;
  const parts = figures.flatMap(([label, ours, theirs], i) => {
    const y = 56 + i * (2 * BAR + 14);
    const length = (value) => ((room * value) / Math.max(ours, theirs)).toFixed(1);
    const bar = (value, top, fill, text) =>
      `<rect x="${LEFT}" y="${top}" width="${length(value)}" height="${BAR}" rx="3" fill="${fill}"/>` +
      `<text x="${LEFT + Number(length(value)) + 8}" y="${top + 12}" fill="#333">${text}</text>`;
    return [
      `<text x="${LEFT - 12}" y="${y + BAR + 4}" text-anchor="end" fill="#333">${label}</text>`,
      bar(ours, y, OURS, `${ours} (${(ours / theirs).toFixed(1)}x)`),
      bar(theirs, y + BAR, THEIRS, theirs),
    ];
  });
  const title = `${titles[name]}: tokens a second, 1B shape, 4 bits, 2 threads`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" font-family="sans-serif" font-size="13" role="img" aria-label="${title}">`,
    `<title>${title}</title>`,
    `<rect width="${WIDTH}" height="${height}" fill="#fff"/>`,
    `<text x="16" y="24" font-size="15" font-weight="bold" fill="#222">${title}</text>`,
    `<rect x="${LEFT}" y="34" width="12" height="12" fill="${OURS}"/><text x="${LEFT + 18}" y="45" fill="#333">lowbit</text>`,
    `<rect x="${LEFT + 90}" y="34" width="12" height="12" fill="${THEIRS}"/><text x="${LEFT + 108}" y="45" fill="#333">node-llama-cpp</text>`,
    ...parts,
    "</svg>\n",
  ].join("\n");
}

for (const [ending, name] of Object.entries(classes)) {
  const file = new URL(`../docs/speed-${name}.svg`, import.meta.url);
  writeFileSync(file, chart(name, figuresOf(ending)));
  console.log(`written to ${file.pathname}`);
}
