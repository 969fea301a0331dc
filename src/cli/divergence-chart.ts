/** A chart of divergence over bytes as SVG: logarithmic axes, a curve for each text, a point for each model. */
import { formatBytes } from "./table.ts";

/** The measurements of all models on one text. */
export interface Curve {
  /** Name of the text. */
  readonly name: string;
  readonly points: readonly ModelPoint[];
}

interface ModelPoint {
  /** Name of the model. */
  readonly name: string;
  readonly bytes: number;
  /** Mean Kullback-Leibler divergence, in nats a token, and its standard error. */
  readonly divergence: number;
  readonly error: number;
}

const SIZE = { width: 900, height: 560, left: 80, right: 220, top: 30, bottom: 60 } as const;
const colors = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"] as const;
/** Smaller divergences are drawn at this one. */
const LEAST = 1e-6;

/** An axis: its ticks, and the coordinate of a value. */
interface Axis {
  readonly ticks: readonly number[];
  at(value: number): number;
}

/** A logarithmic axis between two coordinates that has room for all values. */
function axis(values: readonly number[], from: number, to: number): Axis {
  const [low, high] = [0.9 * Math.min(...values), 1.1 * Math.max(...values)].map(Math.log) as [number, number];
  const at = (value: number) => from + ((Math.log(value) - low) / (high - low)) * (to - from);
  const ticks: number[] = [];
  for (let power = Math.floor(low / Math.LN10); power <= high / Math.LN10; power++)
    for (const digit of [1, 1.5, 2, 3, 5, 7]) {
      const tick = digit * 10 ** power;
      if (Math.log(tick) >= low && Math.log(tick) <= high) ticks.push(tick);
    }
  return { ticks, at };
}

const escapes: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escaped = (text: string) => text.replace(/[&<>"]/g, (character) => escapes[character]!);
const fixed = (value: number) => value.toFixed(1);

function text(x: number, y: number, content: string, attributes = ""): string {
  return `<text x="${fixed(x)}" y="${fixed(y)}" ${attributes}>${escaped(content)}</text>`;
}

function line(x1: number, y1: number, x2: number, y2: number, stroke: string): string {
  return `<line x1="${fixed(x1)}" y1="${fixed(y1)}" x2="${fixed(x2)}" y2="${fixed(y2)}" stroke="${stroke}"/>`;
}

const TITLE = "KL divergence against bytes";

/** Draws at least one curve; all have the same models. */
export function divergenceChart(curves: readonly Curve[]): string {
  const { width, height, left, right, top, bottom } = SIZE;
  const all = curves.flatMap(({ points }) => points);
  const x = axis(
    all.map(({ bytes }) => bytes),
    left,
    width - right,
  );
  const y = axis(
    all.map(({ divergence }) => Math.max(LEAST, divergence)),
    height - bottom,
    top,
  );
  const grid = [
    ...x.ticks.flatMap((tick) => [
      line(x.at(tick), top, x.at(tick), height - bottom, "#ddd"),
      text(x.at(tick), height - bottom + 18, formatBytes(tick), 'text-anchor="middle"'),
    ]),
    ...y.ticks.flatMap((tick) => [
      line(left, y.at(tick), width - right, y.at(tick), "#ddd"),
      text(left - 8, y.at(tick) + 4, String(Number(tick.toPrecision(2))), 'text-anchor="end"'),
    ]),
    text((left + width - right) / 2, height - 16, "bytes of the file", 'text-anchor="middle"'),
    text(left, top - 12, "KL divergence from the reference, nats a token"),
  ];
  const drawn = curves.flatMap((curve, i) => drawCurve(curve, { x, y }, colors[i % colors.length]!, i));
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12" role="img" aria-label="${TITLE}">`,
    `<title>${TITLE}</title>`,
    `<rect width="${width}" height="${height}" fill="#fff"/>`,
    ...grid,
    ...drawn,
    "</svg>\n",
  ].join("\n");
}

function drawCurve({ name, points }: Curve, { x, y }: { x: Axis; y: Axis }, color: string, index: number): string[] {
  const sorted = [...points].sort((a, b) => a.bytes - b.bytes);
  const place = ({ bytes, divergence }: ModelPoint) => [x.at(bytes), y.at(Math.max(LEAST, divergence))] as const;
  const path = sorted.map((point) => place(point).map(fixed).join(",")).join(" ");
  const marks = sorted.flatMap((point) => {
    const [px, py] = place(point);
    const ends = [point.divergence - point.error, point.divergence + point.error].map((end) =>
      y.at(Math.max(LEAST, end)),
    );
    return [
      line(px, ends[0]!, px, ends[1]!, color),
      `<circle cx="${fixed(px)}" cy="${fixed(py)}" r="4" fill="${color}"><title>${escaped(`${point.name}: ${point.divergence}`)}</title></circle>`,
      ...(index === 0 ? [text(px + 7, py - 6, point.name.split(/[\\/]/).at(-1)!)] : []),
    ];
  });
  const legend = SIZE.top + 16 * index;
  return [
    `<polyline points="${path}" fill="none" stroke="${color}" stroke-opacity="0.5"/>`,
    ...marks,
    text(SIZE.width - SIZE.right + 20, legend + 10, name.split(/[\\/]/).at(-1)!, `fill="${color}"`),
  ];
}
