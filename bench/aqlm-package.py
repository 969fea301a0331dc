"""Seconds of a linear layer of the aqlm package on one thread, as JSON: `aqlm-package.py <codebooks>x<bits> <n> <k>`.

One thread, because some of the package's kernels add to their results from several threads at once.
"""
import json
import sys
import time

import torch
from aqlm.inference_kernels import get_forward_pass_kernel

torch.set_num_threads(1)
codebooks, bits = (int(part) for part in sys.argv[1].split("x"))
n, k = int(sys.argv[2]), int(sys.argv[3])
generator = torch.Generator().manual_seed(1)
dtype = torch.int8 if bits == 8 else torch.int16
limit = 2 ** (bits - 1)
codes = torch.randint(-limit, limit, (n, k // 8, codebooks), generator=generator, dtype=torch.int32).to(dtype)
vectors = torch.randn((codebooks, 2**bits, 1, 8), generator=generator)
scales = torch.rand((n, 1, 1, 1), generator=generator)
x = torch.randn((1, k), generator=generator)
kernel = get_forward_pass_kernel(vectors, False)
times = []
with torch.no_grad():
    kernel(x, codes, vectors, scales, None)
    for _ in range(5):
        start = time.perf_counter()
        kernel(x, codes, vectors, scales, None)
        times.append(time.perf_counter() - start)
print(json.dumps(sorted(times)[len(times) // 2]))
