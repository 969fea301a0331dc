/** The figures of bench/compare-parts.js as Markdown. */
import { BASE, PEER, WIDE } from "./compare-parts.js";
import { digits, table } from "./report.js";

const percent = (ratio) => `${(100 * ratio).toFixed(0)} %`;
const mb = (bytes) => `${(bytes / 1e6).toFixed(0)} MB`;
const gb = (bytes) => digits(bytes / 1e9);

function speed(results) {
  const rows = results.flatMap(({ threads, rows }) =>
    rows.map(({ what, tokens, found }) => {
      const names = [PEER, BASE, WIDE].filter((name) => found[name]);
      const [theirs, own, wide] = names.map((name) => tokens / found[name].value);
      const others = Math.max(...names.map((name) => found[name].others));
      const units = names.map((name) => percent(found[name].units)).join(", ");
      return [
        `${what} ${tokens}`,
        String(threads),
        digits(theirs),
        digits(own),
        `${digits(own / theirs)}x`,
        ...(wide ? [digits(wide), `${digits(wide / theirs)}x`] : ["", ""]),
        others.toFixed(2),
        units,
      ];
    }),
  );
  const limits = results.map(({ threads, rows, constants }) => {
    const { tokens, found } = rows.at(-1);
    const used = (constants * tokens) / found[BASE].value;
    const { value: bandwidth } = found.bandwidth;
    return [String(threads), mb(constants), gb(used), gb(bandwidth), percent(used / bandwidth)];
  });
  return [
    "## Prefill and decode",
    table(["tok/s", "threads", PEER, BASE, "", WIDE, "", "cores busy with others", "units, of their best"], rows),
    "The last column is what the cores' multiply-add units gave just before and after, of each engine in turn, of the best rate in the run: on a shared host other guests may use the same units through the other hardware threads, which slows matrix units more than vector units.",
    `Decoding in ${BASE} beside reading the same mapped weights (bytes of weights times tokens a second; reading is the median of the best prefetch distance), asked in turn:`,
    table(["threads", "weights", "decode, GB/s", "read, GB/s", "share"], limits),
  ].join("\n\n");
}

function schemes({ threads, tokens, bytes, prefill, decode }) {
  const rate = (found, scheme, what) => tokens[what] / found[scheme].value;
  const rows = Object.keys(bytes).map((scheme) => [
    scheme,
    mb(bytes[scheme]),
    digits(rate(prefill, scheme, "prefill")),
    digits(rate(decode, scheme, "decode")),
    `${digits(rate(decode, scheme, "decode") / rate(decode, BASE, "decode"))}x`,
  ]);
  const head = [
    "weights",
    "bytes",
    `prefill ${tokens.prefill}, tok/s`,
    `decode ${tokens.decode}, tok/s`,
    `decode / ${BASE}`,
  ];
  return `## Bit widths\n\nOn ${threads} threads, in turn.\n\n${table(head, rows)}`;
}

function context({ threads, results }) {
  const rows = results.map(({ cache, atNone, atLong, ratio }) => [
    cache,
    digits(atNone),
    digits(atLong),
    percent(ratio),
  ]);
  const head = ["KV cache", "decode at 0, tok/s", `decode at ${results[0].context}, tok/s`, "ratio"];
  return `## Long context\n\nOn ${threads} threads; two sessions of one program in turn, median of the ratios of neighbouring stretches.\n\n${table(head, rows)}`;
}

function start(rows) {
  const head = [
    "",
    "load, s",
    "load to first token, s",
    "process start to first token, s",
    "peak RSS",
    "file",
    "KV cache",
  ];
  const cells = rows.map(({ name, load, firstToken, fromProcessStart, peak, state, file }) => [
    ...[name, digits(load), digits(firstToken), digits(fromProcessStart), mb(peak), mb(file)],
    ...[state ? mb(state) : "", state ? mb(peak - file - state) : ""],
  ]);
  return `## Load and memory\n\nFiles in the page cache; peak after a prompt and some tokens.\n\n${table([...head, "over file + KV cache"], cells)}`;
}

function busy({ threadCounts, rows }) {
  const head = ["tok/s", ...threadCounts.map((threads) => `${threads} thread${threads > 1 ? "s" : ""}`), "ratio"];
  const cells = rows.map(({ what, tokens, rates }) => [
    `${what} ${tokens}`,
    ...rates.map(digits),
    digits(rates[1] / rates[0]),
  ]);
  return `## Beside a busy core\n\nAnother process keeps one core busy; below 1, two threads would wait for it.\n\n${table(head, cells)}`;
}

function pages({ bytes, copySeconds, mapped, unasked, copied }) {
  const rows = [
    ["mapped from the file (as loaded), prefetched at the best distance", gb(mapped), "0"],
    ...(unasked ? [["the same, not prefetched", gb(unasked), "0"]] : []),
    ["copied into huge pages", gb(copied), (1000 * copySeconds).toFixed(0)],
  ];
  return `## Where the weights are\n\nReading ${mb(bytes)} of weights, in turn.\n\n${table(["weights", "read, GB/s", "added to the load, ms"], rows)}`;
}

function beside({ name, results }) {
  const rows = results.map(({ threads, what, tokens, found }) => {
    const [theirs, own] = [name, BASE].map((engine) => tokens / found[engine].value);
    const others = Math.max(found[name].others, found[BASE].others);
    return [
      ...[`${what} ${tokens}`, String(threads), digits(theirs), digits(own), `${digits(own / theirs)}x`],
      others.toFixed(2),
    ];
  });
  const head = ["tok/s", "threads", name, BASE, "", "cores busy with others"];
  return `## Beside ${name.replace(/ \S*(Q4_0| g32)$/, "")}\n\n${table(head, rows)}`;
}

const sections = {
  speed,
  schemes,
  context,
  start,
  busy,
  pages,
  ik: beside,
  openvino: beside,
  onnxruntime: beside,
  transformers: beside,
};

/** @param {string} part @param {any} found */
export const sectionOf = (part, found) => sections[part](found);
