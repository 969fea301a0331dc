#!/usr/bin/env python3
"""Loads .pte files in the stock ExecuTorch runtime and prints, as JSON, what it finds in them.

The file is verified by ExecuTorch's FlatBuffer verifier (InternalConsistency). Methods whose operators are all in
the wheel are loaded too; those without inputs, which carry metadata, are run. Exit code 1 when a file fails.

Needs: pip install executorch (tried with 1.5.1) torch
"""

import argparse
import contextlib
import importlib
import json
import sys
from pathlib import Path

from executorch.exir._serialize._flatbuffer_program import _flatbuffer_to_program
from executorch.exir.scalar_type import ScalarType
from executorch.runtime import Runtime, Verification

# Importing them registers operators that the runtime alone does not have.
OPERATOR_MODULES = ("executorch.kernels.quantized", "executorch.extension.llm.custom_ops.custom_ops")


def operators_by_method(path: Path) -> dict[str, list[str]]:
    """Operator names of each method, from the exporter's own decoder: the runtime has no API for them."""
    with path.open("rb") as file:
        program_bytes = int.from_bytes(file.read(24)[16:], "little")
        file.seek(0)
        program = _flatbuffer_to_program(file.read(program_bytes))
    return {plan.name: [operator_name(operator) for operator in plan.operators] for plan in program.execution_plan}


def operator_name(operator) -> str:
    return f"{operator.name}.{operator.overload}" if operator.overload else operator.name


def tensor_metadata(get, count: int) -> list:
    """Sizes and dtype of each input or output; null for one that is not a tensor."""
    result = []
    for index in range(count):
        try:
            info = get(index)
        except IndexError:
            result.append(None)
        else:
            result.append({"sizes": list(info.sizes()), "dtype": ScalarType(info.dtype()).name})
    return result


def describe_method(program, name: str, operators: list[str], registered: set[str]) -> dict:
    metadata = program.metadata(name)
    missing = sorted(set(operators) - registered)
    result = {
        "name": name,
        "inputs": tensor_metadata(metadata.input_tensor_meta, metadata.num_inputs()),
        "outputs": tensor_metadata(metadata.output_tensor_meta, metadata.num_outputs()),
        "operators": operators,
        "missing_operators": missing,
        "loaded": not missing,
    }
    if not missing:
        method = program.load_method(name)
        if metadata.num_inputs() == 0:
            values = method.execute([])
            result["values"] = [value if isinstance(value, (int, float, str)) else str(value) for value in values]
    return result


def describe_file(path: Path, runtime: Runtime) -> dict:
    try:
        program = runtime.load_program(path, verification=Verification.InternalConsistency)
        operators = operators_by_method(path)
        registered = runtime.operator_registry.operator_names
        methods = [describe_method(program, name, operators[name], registered) for name in sorted(program.method_names)]
    except (OSError, RuntimeError, KeyError) as error:
        return {"file": str(path), "verified": False, "error": f"{type(error).__name__}: {error}"}
    return {"file": str(path), "verified": True, "methods": methods}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.pte")
    arguments = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):
        for module in OPERATOR_MODULES:
            try:
                importlib.import_module(module)
            except (ImportError, OSError) as error:
                print(f"{module} is not available, its operators will be missing: {error}", file=sys.stderr)
        results = [describe_file(path, Runtime.get()) for path in arguments.files]
    print(json.dumps(results, indent=2))
    return 0 if all(result["verified"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
