#!/usr/bin/env python3
"""Runs .pte programs in ExecuTorch's runtime: greedy tokens with their logits, and the text of its TextLLMRunner.

Reads a job, {library, programs: [{file, ids, count, tokenizer, prompt, bos}]}, and writes a result for each program:
{tokens, text}; logits go to FILE.logits as float32, one row for each token that was fed.

Needs: pip install executorch torch
"""

import argparse
import ctypes
import json
from pathlib import Path

import executorch.kernels.quantized  # noqa: F401  registers operators
import torch
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  registers operators
from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner
from executorch.runtime import Runtime, Verification


def greedy(file: str, ids: list[int], count: int) -> tuple[list[int], torch.Tensor]:
    """Feeds the prompt token by token and then what was most likely; gives the tokens after the prompt, all logits."""
    method = Runtime.get().load_program(file, verification=Verification.InternalConsistency).load_method("forward")
    fed, logits = list(ids), []
    for position in range(len(ids) + count - 1):
        output = method.execute([torch.tensor([[fed[position]]]), torch.tensor([position])])[0].flatten().clone()
        logits.append(output)
        if len(fed) == position + 1:
            fed.append(int(output.argmax()))
    return fed[len(ids) :], torch.stack(logits)


def runner_text(file: str, tokenizer: str, prompt: str, count: int, bos: int) -> str:
    pieces = []
    config = GenerationConfig(echo=False, max_new_tokens=count, temperature=0.0, num_bos=bos)
    TextLLMRunner(file, tokenizer).generate(prompt, config, pieces.append)
    return "".join(pieces)


def run(program: dict) -> dict:
    file, count = program["file"], program["count"]
    tokens, logits = greedy(file, program["ids"], count)
    Path(f"{file}.logits").write_bytes(logits.numpy().tobytes())
    text = runner_text(file, program["tokenizer"], program["prompt"], count, program["bos"])
    return {"tokens": tokens, "text": text}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=Path, metavar="JOB.json")
    parser.add_argument("result", type=Path, metavar="RESULT.json")
    arguments = parser.parse_args()
    job = json.loads(arguments.job.read_text())
    ctypes.CDLL(job["library"])
    arguments.result.write_text(json.dumps([run(program) for program in job["programs"]]))


if __name__ == "__main__":
    main()
