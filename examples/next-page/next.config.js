// Pages with these headers may use all threads; without them the model runs on one.
const headers = [
  { key: "Cross-Origin-Opener-Policy", value: "same-origin" },
  { key: "Cross-Origin-Embedder-Policy", value: "require-corp" },
];

/** @type {import("next").NextConfig} */
export default {
  headers: async () => [{ source: "/:path*", headers }],
};
