"""`/metrics` of the simulated server: SGLang's names, labels and habits for the series that a monitor reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import accumulate

from genmon.sim.arguments import NEW, numbers
from genmon.sim.decode import LATENCY_BOUNDS_S, Finished, Scheduler

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def page(scheduler: Scheduler, version: str) -> str:
    """The page, as text.

    Gauges say what the last report said (every 40 steps, at a prefill): on 0.5.11 the last batch stays there while the
    server idles. `generation_tokens_total` moves only when a request ends, `realtime_tokens_total` at every step.
    """
    new = numbers(version) >= NEW
    gauges, arguments = scheduler.gauges, scheduler.arguments
    model = f'model_name="{arguments.served_model_name}"'
    ranks = 'moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    ranked, plain = f'engine_type="unified",{model},{ranks}', f'engine_type="unified",{model}'
    with_pid = f'engine_type="unified",{model},moe_ep_rank="0",pid="{os.getpid()}",pp_rank="0",tp_rank="0"'
    lines: list[str] = []
    for name, value in (
        ("max_total_num_tokens", scheduler.kv_tokens),
        ("context_len", arguments.context_length),
        ("num_running_reqs", gauges.running),
        ("num_queue_reqs", gauges.queued),
        ("gen_throughput", gauges.gen_throughput),
        ("num_grammar_queue_reqs", 0.0),
        ("cache_hit_rate", 0.0),
        ("token_usage", round(max(gauges.kv_usage, gauges.mamba_usage), 2)),
        ("full_token_usage", gauges.kv_usage),
        ("swa_token_usage", 0.0),
        ("mamba_usage", gauges.mamba_usage),
        ("spec_accept_length", gauges.acceptance_length),
        ("spec_accept_rate", scheduler.accept_rate),
        *((("fwd_occupancy", float("nan")),) if new else ()),
    ):
        lines += [*_head(name, "gauge"), f"sglang:{name}{{{ranked}}} {_number(value)}"]
    lines += [*_head("num_retracted_reqs", "gauge"), f"sglang:num_retracted_reqs{{{with_pid}}} 0.0"]
    lines += _head("realtime_tokens_total", "counter")
    for mode, value in (("prefill_compute", scheduler.prefilled), ("decode", scheduler.decoded)):
        labels = f'engine_type="unified",mode="{mode}",{model},{ranks}'
        lines.append(f"sglang:realtime_tokens_total{{{labels}}} {_number(value)}")
    lines += _head("cuda_graph_passes_total", "counter")
    labels = f'engine_type="unified",mode="decode_cuda_graph",{model},{ranks}'
    lines.append(f"sglang:cuda_graph_passes_total{{{labels}}} {_number(scheduler.passes)}")
    for name, field in (
        ("prompt_tokens_total", "prompt_tokens"),
        ("generation_tokens_total", "tokens"),
        ("num_requests_total", "requests"),
    ):
        lines += _head(name, "counter")
        for labels, finished in _by_stream(scheduler, model, new=new):
            lines.append(f"sglang:{name}{{{labels}}} {_number(getattr(finished, field))}")
    lines += _head("e2e_request_latency_seconds", "histogram")
    for labels, finished in _by_stream(scheduler, model, new=new):
        lines += _histogram("sglang:e2e_request_latency_seconds", labels, finished)
    if scheduler.aborted:
        lines += _head("num_aborted_requests_total", "counter")
        lines.append(f"sglang:num_aborted_requests_total{{{plain}}} {_number(scheduler.aborted)}")
    return "\n".join(lines) + "\n"


def _by_stream(scheduler: Scheduler, model: str, *, new: bool) -> Iterator[tuple[str, Finished]]:
    """The counters of finished requests by label set: 0.5.23 tells streams apart. None before the first has ended."""
    if new:
        for streaming, finished in scheduler.finished.items():
            if finished.requests:
                yield f'engine_type="unified",is_streaming="{str(streaming).lower()}",{model}', finished
        return
    both = list(scheduler.finished.values())
    if any(finished.requests for finished in both):
        yield (
            f'engine_type="unified",{model}',
            Finished(
                requests=sum(each.requests for each in both),
                prompt_tokens=sum(each.prompt_tokens for each in both),
                tokens=sum(each.tokens for each in both),
                latency_s=sum(each.latency_s for each in both),
                latency_counts=[sum(pair) for pair in zip(*(each.latency_counts for each in both), strict=True)],
            ),
        )


def _histogram(name: str, labels: str, finished: Finished) -> Iterator[str]:
    engine, rest = labels.split(",", 1)
    bounds = [*(_number(bound) for bound in LATENCY_BOUNDS_S), "+Inf"]
    yield f"{name}_sum{{{labels}}} {finished.latency_s}"
    for bound, below in zip(bounds, accumulate(finished.latency_counts), strict=True):
        yield f'{name}_bucket{{{engine},le="{bound}",{rest}}} {_number(below)}'
    yield f"{name}_count{{{labels}}} {_number(finished.requests)}"


def _head(name: str, kind: str) -> tuple[str, str]:
    return f"# HELP sglang:{name} SIMULATED", f"# TYPE sglang:{name} {kind}"


def _number(value: float) -> str:
    number = float(value)
    return "NaN" if number != number else repr(number)
