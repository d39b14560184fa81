"""What came back, made fit to keep: small, without UUIDs, serials and host names.

    python -m benchmarks.h200.tidy BACK RESULTS CAPTURES

BACK holds sampler.json and the unpacked folders of `session.py`'s parts. RESULTS gets the states (1 Hz), NVML (10 Hz)
and the figures; CAPTURES the endpoints' answers and logs, cut down to what genmon reads, for the contract tests.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BIN = re.compile(r"(?:/[\w.-]+)+/bin/(?=python)")
_READ = (
    *("num_running_reqs", "num_queue_reqs", "num_grammar_queue_reqs", "num_retracted_reqs", "cuda_graph_passes_total"),
    *("token_usage", "full_token_usage", "mamba_usage", "cache_hit_rate", "gen_throughput", r"spec_\w+"),
    *("generation_tokens_total", "prompt_tokens_total", "realtime_tokens_total", r"time_to_first_token_seconds\w*"),
)
_SERIES = re.compile(rf"(?:# (?:HELP|TYPE) )?sglang:(?:{'|'.join(_READ)})[{{ ]")
_FIELDS = (
    *("model_path", "context_length", "host", "port", "mem_fraction_static", "max_running_requests", "tp_size"),
    *("dp_size", "enable_metrics", "api_key", "served_model_name", "reasoning_parser", "speculative_algorithm"),
    *("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens", "disable_overlap_schedule"),
    *("disable_radix_cache", "disable_cuda_graph", "cuda_graph_max_bs", "attention_backend", "load_format", "version"),
    *("internal_states", "effective_max_running_requests_per_dp", "last_gen_throughput", "memory_usage"),
    *("avg_spec_accept_length", "max_total_num_tokens"),
)
_LOG = re.compile(
    r"Load weight|Memory pool|KV Cache|[Mm]amba|max_total_num_tokens|Capture|fired up|SIGTERM|Gracefully|crashed"
    r"|Traceback|Error|Uvicorn running"
)
_BATCH_LINES, _LAST_LINES = 10, 12


def clean(text: str, host: str) -> str:
    """Without what names the machine."""
    text = _BIN.sub("", text)
    text = _UUID.sub("GPU-00000000-0000-0000-0000-000000000000", text)
    return text.replace("/opt/bench/", "").replace(f'"{host}"', '"box"')


def states(path: Path) -> Iterator[str]:
    """A run's states, each without what the one before said already: old events and the launch flags."""
    told: float = 0.0
    for line in path.read_text().splitlines():
        state = json.loads(line)
        if state.get("type") == "state":
            events = [event for event in state["events"] if event["at"] > told]
            told = max([told, *(event["at"] for event in events)])
            state["events"] = events
            state["job"].pop("shards", None)
        host = next((server["host"] for server in state.get("servers", ())), "")
        yield clean(json.dumps(state, separators=(",", ":")), host)


def pick(value: object) -> object:
    """The fields that genmon reads, at every depth."""
    if isinstance(value, dict):
        return {
            name: pick(each) if name == "internal_states" else each for name, each in value.items() if name in _FIELDS
        }
    return [pick(each) for each in value] if isinstance(value, list) else value


def capture(source: Path, target: Path) -> None:
    """One answer, cut down."""
    head, _, body = source.read_text().partition("\n\n")
    if source.name.startswith("metrics"):
        body = "\n".join(line for line in body.splitlines() if _SERIES.match(line)) + "\n"
    elif source.name.startswith("server_info"):
        body = json.dumps(pick(json.loads(body)))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"{head}\n\n{clean(body, '')}")


def log(archive: Path, target: Path) -> None:
    """A server's log: what says something of its state, a launch's first batches, and its last lines."""
    with tarfile.open(archive) as file:
        member = file.extractfile("./logs/s0.log")
        lines = member.read().decode(errors="replace").splitlines() if member else []
    kept, batches = [], 0
    for number, line in enumerate(lines):
        batch = "Decode batch" in line or "Prefill batch" in line
        batches += batch
        begins = line.startswith("=== genmon")
        batches = 0 if begins else batches
        last = number > len(lines) - _LAST_LINES
        if (
            begins
            or last
            or (batch and batches <= _BATCH_LINES)
            or (not batch and _LOG.search(line) and len(line) < 500)
        ):
            kept.append(clean(line, "")[:1000])
    target.write_text("\n".join(kept) + "\n")


def main() -> None:
    back, results, captures = (Path(each) for each in sys.argv[1:4])
    results.mkdir(parents=True, exist_ok=True)
    (results / "sampler.json").write_text((back / "sampler.json").read_text())
    for part in ("hold", "off", "on", "toggle"):
        for path in sorted((back / part).glob("*.jsonl")):
            if path.name.startswith("bench"):
                record = json.loads(path.read_text())
                kept = {name: value for name, value in record.items() if isinstance(value, int | float | str)}
                (results / path.with_suffix(".json").name).write_text(clean(json.dumps(kept, indent=1), ""))
                continue
            with gzip.GzipFile(results / f"{path.stem}.states.jsonl.gz", "wb", mtime=0) as file:
                file.write(("\n".join(states(path)) + "\n").encode())
        for path in (back / part).glob("nvml.csv.gz"):
            shutil.copy(path, results / f"{part}.nvml.csv.gz")
        for path in (*(back / part).glob("*-figures.json"), *(back / part).glob("*-verify.txt")):
            (results / path.name).write_text(clean(path.read_text(), ""))
    for part, mode in (("hold", "mtp-off"), ("on", "mtp-on")):
        for path in (back / part / "captures").glob("*.http"):
            capture(path, captures / mode / path.name)
    log(back / "hold" / "hold-job.tgz", captures / "mtp-off" / "server.log")
    log(back / "on" / "mtp-on-job.tgz", captures / "mtp-on" / "server.log")
    log(back / "off" / "mtp-off-job.tgz", captures / "mtp-off" / "killed.log")


if __name__ == "__main__":
    main()
