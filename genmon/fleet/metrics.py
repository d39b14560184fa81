"""The dozen series genmon reads from SGLang's metrics page.

A scan of our own: the pages are 40 to 90 kB once a second for each server, and a general parser takes 25 ms of CPU for
one where this takes 0.4. Of a series with several label sets (one a rank) counts are summed; the acceptance length
is averaged, and of usages the fullest counts.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class Metrics(Struct, kw_only=True):
    """One reading. None where the page has no such series."""

    decode_tokens: float | None = None
    """Tokens decoded since the server started, moving at every step."""
    prefill_tokens: float | None = None
    """Prompt tokens computed since the server started, moving at every step."""
    running: float | None = None
    queued: float | None = None
    acceptance_length: float | None = None
    """Tokens per verify step; SGLang says 0 when speculation is off or nothing was decoded yet."""
    full_token_usage: float | None = None
    token_usage: float | None = None
    mamba_usage: float | None = None
    retracted_now: float | None = None
    """Requests thrown out just now; its being there tells that the counts begin at 0."""
    retracted_input: float | None = None
    retracted_output: float | None = None
    """Tokens of requests thrown out of a full KV cache since the server started."""
    grammar_queued: float | None = None
    cache_hit_rate: float | None = None
    passes_graphed: float | None = None
    passes_eager: float | None = None
    """Decode passes as a CUDA graph and without. The gauge is_cuda_graph says 0 after any prefill: it is not read."""

    @property
    def retracted_tokens(self) -> float | None:
        """All of them; the page has no counts before the first."""
        if self.retracted_now is None and self.retracted_input is None and self.retracted_output is None:
            return None
        return (self.retracted_input or 0.0) + (self.retracted_output or 0.0)

    @property
    def kv_usage(self) -> float | None:
        """Share of the KV cache in use. `token_usage` is the fullest of several pools, so it comes second."""
        return self.token_usage if self.full_token_usage is None else self.full_token_usage


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


_WANTED: dict[str, tuple[str, Callable[[list[float]], float]]] = {
    "sglang:num_running_reqs": ("running", sum),
    "sglang:num_queue_reqs": ("queued", sum),
    "sglang:spec_accept_length": ("acceptance_length", _mean),
    "sglang:full_token_usage": ("full_token_usage", max),
    "sglang:token_usage": ("token_usage", max),
    "sglang:mamba_usage": ("mamba_usage", max),
    "sglang:num_retracted_reqs": ("retracted_now", sum),
    "sglang:num_retracted_input_tokens_total": ("retracted_input", sum),
    "sglang:num_retracted_output_tokens_total": ("retracted_output", sum),
    "sglang:num_grammar_queue_reqs": ("grammar_queued", sum),
    "sglang:cache_hit_rate": ("cache_hit_rate", _mean),
    'mode="decode"': ("decode_tokens", sum),
    'mode="prefill_compute"': ("prefill_tokens", sum),
    'mode="decode_cuda_graph"': ("passes_graphed", sum),
    'mode="decode_none"': ("passes_eager", sum),
}
_BY_MODE: dict[str, tuple[str, ...]] = {
    "sglang:realtime_tokens_total": ('mode="decode"', 'mode="prefill_compute"'),
    "sglang:cuda_graph_passes_total": ('mode="decode_cuda_graph"', 'mode="decode_none"'),
}


def parse(page: str) -> Metrics:
    """Read a page. Lines that are not numbers are passed over."""
    found: dict[str, list[float]] = {}
    for line in page.splitlines():
        if not line.startswith("sglang:"):
            continue
        name, brace, rest = line.partition("{")
        if not brace:
            name, _, rest = line.partition(" ")
        if name in _BY_MODE:
            name = next((mode for mode in _BY_MODE[name] if mode in rest), name)
        if name not in _WANTED:
            continue
        try:
            value = float(rest.rpartition("}")[2].split()[0])
        except (ValueError, IndexError):
            continue
        if value - value == 0:  # neither NaN nor infinite
            found.setdefault(name, []).append(value)
    metrics = Metrics()
    for name, values in found.items():
        field, combine = _WANTED[name]
        setattr(metrics, field, combine(values))
    return metrics
