#!/usr/bin/env python3
"""OpenVINO GenAI and ONNX Runtime GenAI as engines of compare.js, on the CPU.

    peer-python.py make  openvino|onnxruntime CHECKPOINT FOLDER   the checkpoint in 4 bits, groups of 32
    peer-python.py serve openvino|onnxruntime FOLDER THREADS      answers requests, a line of JSON each

Needs the packages that bench/peer-python.js installs.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

GROUP_SIZE = 32


def make_openvino(checkpoint: str, folder: str) -> None:
    from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig

    four = OVWeightQuantizationConfig(bits=4, sym=True, group_size=GROUP_SIZE, ratio=1.0, all_layers=True)
    model = OVModelForCausalLM.from_pretrained(checkpoint, export=True, compile=False, quantization_config=four)
    model.save_pretrained(folder)


def make_onnxruntime(checkpoint: str, folder: str) -> None:
    # Accuracy level 4: activations in 8 bits, as ours.
    options = [f"int4_block_size={GROUP_SIZE}", "int4_is_symmetric=true", "int4_accuracy_level=4"]
    places = ["-i", checkpoint, "-o", folder, "-c", str(Path(folder, "cache"))]
    builder = [sys.executable, "-m", "onnxruntime_genai.models.builder", *places, "-p", "int4", "-e", "cpu"]
    subprocess.run([*builder, "--extra_options", *options], check=True)


class OpenVino:
    def __init__(self, folder: str, threads: int) -> None:
        import numpy as np
        import openvino_genai as genai

        self.genai, self.np = genai, np
        self.pipe = genai.LLMPipeline(folder, "CPU", INFERENCE_NUM_THREADS=threads)

    def _generate(self, ids: list, count: int):
        import openvino as ov

        config = self.genai.GenerationConfig(max_new_tokens=count, ignore_eos=True, do_sample=False)
        row = self.np.array([ids], dtype=self.np.int64)
        inputs = self.genai.TokenizedInputs(ov.Tensor(row), ov.Tensor(self.np.ones_like(row)))
        return self.pipe.generate(inputs, config).perf_metrics

    def prefill(self, ids: list) -> float:
        return self._generate(ids, 1).get_ttft().mean / 1000

    def decode(self, ids: list, count: int) -> float:
        return self._generate(ids, count + 1).get_tpot().mean * count / 1000


class OnnxRuntime:
    def __init__(self, folder: str, threads: int) -> None:
        import onnxruntime_genai as genai

        self.genai = genai
        config = genai.Config(folder)
        session = {"intra_op_num_threads": threads}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}}))
        self.model = genai.Model(config)

    def _begin(self, ids: list, count: int):
        parameters = self.genai.GeneratorParams(self.model)
        length = len(ids) + count
        parameters.set_search_options(do_sample=False, max_length=length, min_length=length)
        return self.genai.Generator(self.model, parameters)

    def prefill(self, ids: list) -> float:
        generator = self._begin(ids, 1)
        start = time.perf_counter()
        generator.append_tokens(ids)
        generator.generate_next_token()
        return time.perf_counter() - start

    def decode(self, ids: list, count: int) -> float:
        generator = self._begin(ids, count + 1)
        generator.append_tokens(ids)
        generator.generate_next_token()
        start = time.perf_counter()
        for _ in range(count):
            generator.generate_next_token()
        return time.perf_counter() - start


ENGINES = {"openvino": (make_openvino, OpenVino), "onnxruntime": (make_onnxruntime, OnnxRuntime)}


def serve(engine, out) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        ids = request["ids"]
        seconds = engine.prefill(ids) if request["what"] == "prefill" else engine.decode(ids, request["tokens"])
        print(json.dumps({"seconds": seconds}), file=out, flush=True)


def main() -> None:
    command, name, source, target = sys.argv[1:]
    make, engine = ENGINES[name]
    if command == "make":
        make(source, target)
        return
    # Libraries print to the output that answers go to.
    out, sys.stdout = sys.stdout, sys.stderr
    loaded = engine(source, int(target))
    print(json.dumps({"ready": True}), file=out, flush=True)
    serve(loaded, out)


if __name__ == "__main__":
    main()
