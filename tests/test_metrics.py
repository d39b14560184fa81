"""The scan of the metrics page, against the reference parser and real pages."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from genmon.fleet.metrics import Metrics, parse

CAPTURES = sorted((Path(__file__).parent / "captures").rglob("metrics_*.http"))
NAMES = {
    "running": "sglang:num_running_reqs",
    "queued": "sglang:num_queue_reqs",
    "full_token_usage": "sglang:full_token_usage",
    "token_usage": "sglang:token_usage",
    "mamba_usage": "sglang:mamba_usage",
    "acceptance_length": "sglang:spec_accept_length",
    "cache_hit_rate": "sglang:cache_hit_rate",
    "grammar_queued": "sglang:num_grammar_queue_reqs",
    "retracted_now": "sglang:num_retracted_reqs",
    "passes_graphed": "sglang:cuda_graph_passes_totaldecode_cuda_graph",
    "passes_eager": "sglang:cuda_graph_passes_totaldecode_none",
}


def page(path: Path) -> str:
    return path.read_bytes().partition(b"\n\n")[2].decode()


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_it_reads_what_the_reference_parser_reads(path: Path) -> None:
    values: dict[str, list[float]] = defaultdict(list)
    for family in text_string_to_metric_families(page(path)):
        for sample in family.samples:
            values[sample.name + sample.labels.get("mode", "")].append(sample.value)
    metrics = parse(page(path))
    for field, name in NAMES.items():
        expected = values[name]
        assert len(expected) <= 1
        assert getattr(metrics, field) == (expected[0] if expected else None), field
    assert metrics.decode_tokens == sum(values["sglang:realtime_tokens_totaldecode"])
    assert metrics.prefill_tokens == sum(values["sglang:realtime_tokens_totalprefill_compute"])
    assert metrics.running is not None


def test_a_busy_h200_decodes_with_cuda_graphs_though_its_gauge_says_no() -> None:
    text = page(Path(__file__).parent / "captures" / "h200" / "mtp-on" / "metrics_busy.http")
    metrics = parse(text)
    assert metrics.passes_graphed is not None and metrics.passes_graphed > 0
    assert metrics.passes_eager is None
    assert metrics.retracted_tokens == 0, "no count on the page yet: none was thrown out"


def test_retracted_tokens_are_those_in_and_out() -> None:
    counts = (
        'sglang:num_retracted_input_tokens_total{a="b"} 30.0\nsglang:num_retracted_output_tokens_total{a="b"} 12.0\n'
    )
    assert parse(counts).retracted_tokens == 42
    assert parse("").retracted_tokens is None


def test_there_are_pages_to_read() -> None:
    assert len(CAPTURES) >= 8


def test_several_ranks_are_put_together() -> None:
    metrics = parse(
        'sglang:num_running_reqs{dp_rank="0"} 3.0\n'
        'sglang:num_running_reqs{dp_rank="1"} 4.0\n'
        'sglang:spec_accept_length{dp_rank="0"} 2.0\n'
        'sglang:spec_accept_length{dp_rank="1"} 3.0\n'
        'sglang:token_usage{dp_rank="0"} 0.9\n'
        'sglang:token_usage{dp_rank="1"} 0.2\n'
        'sglang:realtime_tokens_total{dp_rank="0",mode="decode"} 10.0\n'
        'sglang:realtime_tokens_total{mode="decode",dp_rank="1"} 1e3 1796096374\n'
        'sglang:realtime_tokens_total{mode="prefill_cache"} 7.0\n'
    )
    assert (metrics.running, metrics.acceptance_length, metrics.kv_usage) == (7.0, 2.5, 0.9)
    assert (metrics.decode_tokens, metrics.prefill_tokens) == (1010.0, None)


def test_what_is_not_there_is_not_known() -> None:
    assert parse("") == Metrics()
    noise = "sglang:num_running_reqs{a=\nsglang:token_usage\nsglang:mamba_usage{} NaN\nsglang:num_queue_reqs +Inf\n"
    assert parse("<html>not a page</html>\n" + noise) == Metrics()


def test_names_are_whole_and_labels_may_hold_anything() -> None:
    metrics = parse('sglang:num_running_reqs_more 9\nsglang:num_running_reqs{model_name="a} 1 b"} 2.0\n')
    assert metrics.running == 2.0


def test_the_kv_cache_itself_is_preferred() -> None:
    assert parse("sglang:full_token_usage 0.1\nsglang:token_usage 0.9\n").kv_usage == 0.1
    assert parse("sglang:token_usage 0.9\n").kv_usage == 0.9
