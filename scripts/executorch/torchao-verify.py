#!/usr/bin/env python3
"""Loads a folder written by `lowbit quantize --format torchao` in transformers and prints the logits after token ids.

    lowbit quantize CHECKPOINT --qmode 8da4w --format torchao -o FOLDER
    python scripts/executorch/torchao-verify.py FOLDER 1,403,407
    lowbit logits FOLDER --ids 1,403,407 --json

Both print the logits of the last position; they agree to roundings of float32.
Needs: pip install torch transformers torchao (tried with 2.13.0, 5.23.0 and 0.18.0)
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM


def main() -> None:
    folder, ids = sys.argv[1:]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([[int(item) for item in ids.split(",")]])).logits[0, -1]
    print(json.dumps({"logits": logits.tolist()}))


if __name__ == "__main__":
    main()
