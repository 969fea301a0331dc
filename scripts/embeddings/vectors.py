"""
Vectors of sentence-transformers for scripts/embeddings/closeness.js: python3 vectors.py <model folder> <texts.json>
<vectors.json>. The texts are a JSON list of strings. Each is encoded alone, in float32 on the CPU. Needs sentence-transformers
(6.2.0 with transformers 5.24.0 and torch 2.15.0 made those that docs/embeddings.md tells of).
"""

import json
import sys

import sentence_transformers
import torch
import transformers

folder, texts_path, vectors_path = sys.argv[1:]
with open(texts_path, encoding="utf-8") as file:
    texts = json.load(file)
model = sentence_transformers.SentenceTransformer(folder, device="cpu")
vectors = model.encode(texts, batch_size=1)
versions = {module.__name__: module.__version__ for module in (sentence_transformers, transformers, torch)}
with open(vectors_path, "w", encoding="utf-8") as file:
    json.dump({"made_by": versions, "texts": texts, "vectors": [[float(x) for x in vector] for vector in vectors]}, file)
