"""The dozen series genmon reads from SGLang's metrics page.

A scan of our own: the pages are 40 to 90 kB once a second for each server, and a general parser takes 25 ms of CPU for
one where this takes 0.4. A series with several label sets (one a rank) is summed.
"""

from __future__ import annotations

from msgspec import Struct

_WANTED = {
    "sglang:num_running_reqs": "running",
    "sglang:num_queue_reqs": "queued",
    "sglang:spec_accept_length": "acceptance_length",
    "sglang:full_token_usage": "full_token_usage",
    "sglang:token_usage": "token_usage",
    "sglang:mamba_usage": "mamba_usage",
}
_DECODED = "sglang:realtime_tokens_total"
_DECODE_MODE = 'mode="decode"'


class Metrics(Struct, kw_only=True):
    """One reading. None where the page has no such series."""

    decode_tokens: float | None = None
    """Tokens decoded since the server started, moving at every step."""
    running: float | None = None
    queued: float | None = None
    acceptance_length: float | None = None
    """Tokens per verify step; SGLang says 0 when speculation is off or nothing was decoded yet."""
    full_token_usage: float | None = None
    token_usage: float | None = None
    mamba_usage: float | None = None

    @property
    def kv_usage(self) -> float | None:
        """Share of the KV cache in use. `token_usage` is the fullest of several pools, so it comes second."""
        return self.token_usage if self.full_token_usage is None else self.full_token_usage


def parse(page: str) -> Metrics:
    """Read a page. Lines that are not numbers are passed over."""
    metrics = Metrics()
    for line in page.splitlines():
        if not line.startswith("sglang:"):
            continue
        name, brace, rest = line.partition("{")
        if not brace:
            name, _, rest = line.partition(" ")
        field = _WANTED.get(name)
        if field is None:
            if name != _DECODED or _DECODE_MODE not in rest:
                continue
            field = "decode_tokens"
        try:
            value = float(rest.rpartition("}")[2].split()[0])
        except (ValueError, IndexError):
            continue
        setattr(metrics, field, (getattr(metrics, field) or 0.0) + value)
    return metrics
