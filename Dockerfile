# lowbit serve in a container, without a compiler and without root. Models are mounted at /models:
#   docker build -t lowbit . && docker run -p 8080:8080 -v ./models:/models:ro lowbit /models/llama.pte
FROM node:22-bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /lowbit
COPY . .
# The addon has the kernels of every CPU of this architecture: the image may run on another machine.
RUN npm ci --no-audit --no-fund && node scripts/native/build.js --all --strict \
  && npm prune --omit=dev --no-audit --no-fund && rm -rf build/native build/web

FROM node:22-bookworm-slim
ENV NODE_ENV=production
WORKDIR /lowbit
COPY --from=build /lowbit/package.json ./
COPY --from=build /lowbit/node_modules node_modules
COPY --from=build /lowbit/dist dist
COPY --from=build /lowbit/build build
USER node
EXPOSE 8080
# Alive; /ready says when the model is loaded.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
  CMD ["node", "-e", "fetch('http://127.0.0.1:8080/health').then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["node", "dist/cli/main.js", "serve", "--host", "0.0.0.0", "--port", "8080"]
