"""Compile the JIT kernels that SGLang 0.5.11 uses for this model, side by side, before the first server needs them.

python prejit.py        (an interpreter with torch and SGLang, on the machine with the GPU)
"""

from __future__ import annotations

import subprocess
import sys
import time

KERNELS = {
    "activation": "from sglang.jit_kernel.activation import _jit_activation_module as f; f(torch.bfloat16)",
    "rope": "from sglang.jit_kernel.rope import _jit_fused_rope_module as f; f(True, 64, torch.bfloat16)",
    "rotary": "from sglang.jit_kernel.rope import _jit_rotary_embedding_module as f; f()",
    "kv cache": "from sglang.jit_kernel.kvcache import _jit_kvcache_module as f; f(2048)",
    "clamp": "from sglang.jit_kernel.clamp_position import _jit_clamp_position_module as f; f(torch.int64)",
    "future": "from sglang.jit_kernel.resolve_future_token_ids import _jit_resolve_future_token_ids_module as f;"
    " f(torch.int64)",
}


def main() -> None:
    began = time.time()
    compiling = {
        name: subprocess.Popen(
            [sys.executable, "-c", f"import torch\n{source}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name, source in KERNELS.items()
    }
    for name, child in compiling.items():
        words = child.communicate()[0]
        print(f"{name}: exit {child.returncode} after {time.time() - began:.1f} s", flush=True)
        if child.returncode:
            print(words[-1500:], flush=True)


if __name__ == "__main__":
    main()
