#!/usr/bin/env python3
"""Runs .pte programs in ExecuTorch's runtime: all their outputs token by token, and the text of its TextLLMRunner.

Reads a job, {library, programs: [{file, stock, fed, count, tokenizer, prompt, bos}]}, and writes a result for each
program: {best, text}: the likeliest token after each of those fed, and, where there is a tokenizer, the text. Outputs go
to FILE.outputs as float32, one row for each token. The operator library is loaded after the programs that are stock.

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


def feed(file: str, fed: list[int]) -> tuple[list[int], torch.Tensor]:
    """Feeds tokens one by one; gives the likeliest after each, and rows of all outputs, the logits first."""
    method = Runtime.get().load_program(file, verification=Verification.InternalConsistency).load_method("forward")
    best, rows = [], []
    for position, token in enumerate(fed):
        outputs = method.execute([torch.tensor([[token]]), torch.tensor([position])])
        best.append(int(outputs[0].argmax()))
        rows.append(torch.cat([output.flatten() for output in outputs]))
    return best, torch.stack(rows)


def runner_text(file: str, tokenizer: str, prompt: str, count: int, bos: int) -> str:
    pieces = []
    config = GenerationConfig(echo=False, max_new_tokens=count, temperature=0.0, num_bos=bos)
    TextLLMRunner(file, tokenizer).generate(prompt, config, pieces.append)
    return "".join(pieces)


def run(program: dict) -> dict:
    file = program["file"]
    best, rows = feed(file, program["fed"])
    Path(f"{file}.outputs").write_bytes(rows.numpy().tobytes())
    if "tokenizer" not in program:
        return {"best": best}
    text = runner_text(file, program["tokenizer"], program["prompt"], program["count"], program["bos"])
    return {"best": best, "text": text}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=Path, metavar="JOB.json")
    parser.add_argument("result", type=Path, metavar="RESULT.json")
    arguments = parser.parse_args()
    job = json.loads(arguments.job.read_text())
    programs = job["programs"]
    results = {program["file"]: run(program) for program in programs if program.get("stock")}
    ctypes.CDLL(job["library"])
    results |= {program["file"]: run(program) for program in programs if not program.get("stock")}
    arguments.result.write_text(json.dumps([results[program["file"]] for program in programs]))


if __name__ == "__main__":
    main()
