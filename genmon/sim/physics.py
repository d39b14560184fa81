"""How a GPU decodes: tokens/s and watts by concurrency, fitted to a measured table.

Source: SGLang 0.5.11 with a Qwen3.6-27B shape on one H200 of 700 W, closed loop, 196-token prompts, 256-token
answers; watts are means of the energy counter. Between the measured points the logarithm of the concurrency is
interpolated, above the last the last slope flattens out.
"""

from __future__ import annotations

import math

POWER_LIMIT_W = 700.0
IDLE_W = 76.5
"""No CUDA context."""
LOADED_IDLE_W = 119.0
"""A server with nothing to do."""
ACCEPTANCE_LENGTH = 2.8
"""Tokens per verify step with three draft steps, as in the measured runs."""
_DRAFT_HIT = 0.7655
"""Chance that a draft token is right, if all have the same: 1 + p + p² + p³ = 2.8."""
MEMORY_WEIGHTS_B = 51_050_000_000
"""Weights alone, while a server loads."""
MEMORY_TOTAL_B = 143_771 << 20
MEMORY_LOADED_B = 118 << 30
SM_CLOCK_IDLE_MHZ = 345
SM_CLOCK_MHZ = 1980

_CONCURRENCY = (1, 4, 8, 16, 32, 64)
_TOKENS_PER_S = {
    False: (64.4, 230.8, 440.6, 845.0, 1462.9, 2372.7),
    True: (120.1, 382.0, 699.0, 1204.8, 1706.8, 2161.0),
}
_POWER_W = {
    False: (539.0, 522.0, 528.0, 566.0, 604.0, 675.0),
    True: (476.0, 477.0, 533.0, 606.0, 649.0, 680.0),
}


def acceptance_length(steps: int) -> float:
    """Tokens per verify step, 1 to `steps` + 1; `ACCEPTANCE_LENGTH` at three steps."""
    return sum(_DRAFT_HIT**step for step in range(steps + 1))


def tokens_per_s(running: int, mtp: bool) -> float:
    """Decoded tokens per second of one GPU with `running` requests in its batch."""
    if running <= 0:
        return 0.0
    return _at(running, _TOKENS_PER_S[mtp])


def power_w(running: int, mtp: bool) -> float:
    """Watts of one GPU with `running` requests in its batch; `LOADED_IDLE_W` with none."""
    if running <= 0:
        return LOADED_IDLE_W
    return min(_at(running, _POWER_W[mtp]), POWER_LIMIT_W)


def _at(running: int, values: tuple[float, ...]) -> float:
    if running >= _CONCURRENCY[-1]:
        slope = values[-1] - values[-2]
        return values[-1] + 0.3 * slope * math.log2(running / _CONCURRENCY[-1])
    for low in range(len(_CONCURRENCY) - 1):
        first, second = _CONCURRENCY[low], _CONCURRENCY[low + 1]
        if first <= running <= second:
            part = math.log(running / first) / math.log(second / first)
            return float(values[low] * (values[low + 1] / values[low]) ** part)
    raise AssertionError("unreachable: the table begins at 1")
