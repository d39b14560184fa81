"""Another process on the GPU: bf16 matrix products of 8192 × 8192 for so many seconds. Prints TFLOP/s.

python burn.py SECONDS
"""

from __future__ import annotations

import sys
import time

import torch


def main() -> None:
    seconds, size = float(sys.argv[1]), 8192
    first, second = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    torch.cuda.synchronize()
    print(f"begin {time.time():.3f}", flush=True)
    began, count = time.time(), 0
    while time.time() - began < seconds:
        for _ in range(20):
            first @ second
        torch.cuda.synchronize()
        count += 20
    took_s = time.time() - began
    print(f"end {time.time():.3f}\n{count * 2 * size**3 / 1e12 / took_s:.0f} TFLOP/s", flush=True)


if __name__ == "__main__":
    main()
