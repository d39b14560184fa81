"""The bodies of SGLang's replies, as versions 0.5.11 and 0.5.23 word them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from genmon.job.row import Json
from genmon.sim import physics, text
from genmon.sim.decode import KV_TOKENS, Request, Scheduler

NEW = (0, 5, 23)


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers."""
    return tuple(int(part) for part in version.split("."))


def error(message: str, kind: str = "BadRequestError", code: int = 400) -> dict[str, Json]:
    """The body of a refusal."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}


def answer_parts(request: Request, thinking: bool, version: str) -> tuple[str | None, str | None, str]:
    """(content, reasoning, finish reason) of a request as far as it came."""
    tokens = int(request.tokens) or 1
    nothing = "" if numbers(version) >= NEW else None
    if request.aborted or request.fate == "abort":
        return text.words(request.seed, tokens), None, "abort"
    if request.fate == "empty":
        return nothing, None, "stop"
    if request.fate == "loop":
        return text.loop(tokens), None, request.ends
    if request.fate == "unclosed" and thinking:
        return nothing, text.words(request.seed, tokens), request.ends
    if not thinking:
        return text.words(request.seed, tokens), None, request.ends
    thought = max(1, min(tokens * 2 // 3, tokens - 1))
    if request.ends == "length" and request.seed % 4 == 0:
        return nothing, text.words(request.seed + 1, tokens), "length"  # cut while still thinking
    return text.words(request.seed, tokens - thought), text.words(request.seed + 1, thought), request.ends


def usage(request: Request, thinking: bool, version: str) -> dict[str, Json]:
    """Token counts of a request."""
    tokens = max(1, int(request.tokens + 1e-6))
    reasoning = tokens * 2 // 3 if thinking else 0
    counts: dict[str, Json] = {
        "prompt_tokens": request.prompt_tokens,
        "total_tokens": request.prompt_tokens + tokens,
        "completion_tokens": tokens,
        "prompt_tokens_details": None,
        "reasoning_tokens": reasoning,
    }
    if numbers(version) >= NEW and reasoning:
        counts["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return counts


def completion(
    request: Request, model: str, thinking: bool, version: str, body: dict[str, Json], scheduler: Scheduler
) -> dict[str, Json]:
    """A chat completion."""
    content, reasoning, finish = answer_parts(request, thinking, version)
    message: dict[str, Json] = {"role": "assistant", "content": content, "reasoning_content": reasoning}
    if numbers(version) < NEW:
        message["tool_calls"] = None
    choice: dict[str, Json] = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": finish,
        "matched_stop": 248046 if finish == "stop" else None,
    }
    reply: dict[str, Json] = {
        "id": request.rid,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": usage(request, thinking, version),
        "metadata": {"weight_version": "default"},
    }
    accepted = scheduler.acceptance_length or physics.ACCEPTANCE_LENGTH
    if scheduler.arguments.mtp and numbers(version) >= (0, 5, 20) and body.get("return_spec_tokens_details"):
        reply["sglext"] = {"spec_tokens_details": {"spec_accept_length": accepted}}
    if scheduler.arguments.mtp and numbers(version) >= (0, 5, 14) and body.get("return_meta_info"):
        choice["meta_info"] = {"id": request.rid, "spec_accept_length": accepted}
    return reply


def server_info(scheduler: Scheduler, version: str) -> dict[str, Json]:
    """`/server_info`, the fields that anyone reads. NEXTN is reported as EAGLE, as SGLang does."""
    arguments = scheduler.arguments
    new = numbers(version) >= NEW
    state: dict[str, Json] = {
        "max_running_requests": arguments.cap_requested,
        "last_gen_throughput": scheduler.gen_throughput,
        "memory_usage": {
            "weight": 51.05,
            "kvcache": 56.7,
            "token_capacity": KV_TOKENS,
            "graph": {"decode": 1.09} if new else 1.09,
        },
        "effective_max_running_requests_per_dp": arguments.cap,
    }
    if scheduler.acceptance_length is not None:
        state["avg_spec_accept_length"] = scheduler.acceptance_length
    return {
        "model_path": arguments.model_path,
        "served_model_name": arguments.served_model_name,
        "host": "127.0.0.1",
        "port": arguments.port,
        "context_length": arguments.context_length,
        "reasoning_parser": arguments.reasoning_parser,
        "enable_metrics": arguments.metrics,
        "max_running_requests": arguments.cap_requested,
        "disable_radix_cache": not arguments.radix_cache,
        "speculative_algorithm": "EAGLE" if arguments.mtp else None,
        "speculative_num_steps": arguments.steps if arguments.mtp else None,
        "speculative_eagle_topk": 1 if arguments.mtp else None,
        "speculative_num_draft_tokens": arguments.draft_tokens if arguments.mtp else None,
        "status": "ready",
        "max_total_num_tokens": KV_TOKENS,
        "max_req_input_len": arguments.context_length - 6,
        "internal_states": [state],
        "version": version,
        "simulated": True,
    }


def model_info(scheduler: Scheduler) -> dict[str, Json]:
    """`/model_info`."""
    path = scheduler.arguments.model_path
    return {
        "model_path": path,
        "tokenizer_path": path,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "has_image_understanding": True,
        "has_audio_understanding": False,
        "model_type": "qwen3_5",
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "simulated": True,
    }


def models(scheduler: Scheduler) -> dict[str, Json]:
    """`/v1/models`."""
    name = scheduler.arguments.served_model_name
    card: dict[str, Json] = {
        "id": name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "sglang",
        "root": name,
        "parent": None,
        "max_model_len": scheduler.arguments.context_length,
    }
    return {"object": "list", "data": [card]}


def loads(scheduler: Scheduler, version: str) -> dict[str, Json]:
    """`/v1/loads`. Without metrics the throughput stays 0 for ever, as in SGLang."""
    metrics = scheduler.arguments.metrics
    load: dict[str, Json] = {
        "num_running_reqs": len(scheduler.running),
        "num_waiting_reqs": len(scheduler.queue),
        "num_used_tokens": scheduler.tokens_held,
        "num_total_tokens": scheduler.tokens_held,
        "max_total_num_tokens": KV_TOKENS,
        "token_usage": round(scheduler.kv_usage, 4),
        "gen_throughput": round(scheduler.gen_throughput, 2) if metrics else 0.0,
        "cache_hit_rate": 0.0,
        "utilization": 0.0,
        "max_running_requests": scheduler.arguments.cap,
        "queues": {"waiting": len(scheduler.queue), "grammar": 0, "paused": 0, "retracted": 0},
    }
    if scheduler.arguments.mtp:
        load["speculative"] = {"accept_length": scheduler.acceptance_length or 0.0, "accept_rate": 0.6}
    reply: dict[str, Json] = {"timestamp": datetime.now(UTC).isoformat(), "version": version, "loads": [load]}
    if numbers(version) >= (0, 5, 13):
        load["dp_rank"] = 0
        reply |= {"accelerator": None, "num_accelerators": 1}
    else:
        reply["dp_rank_count"] = 1
    return reply


def metrics(scheduler: Scheduler, version: str) -> str:
    """`/metrics`: the series that genmon reads, and a few others, with SGLang's labels and habits."""
    name = scheduler.arguments.served_model_name
    ranked = f'engine_type="unified",model_name="{name}",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    plain = f'engine_type="unified",model_name="{name}"'
    streamed = f'engine_type="unified",is_streaming="false",model_name="{name}"'
    finished = streamed if numbers(version) >= (0, 5, 18) else plain
    accepted = scheduler.acceptance_length or 0.0
    rows: list[tuple[str, str, str, float]] = [
        ("num_running_reqs", "gauge", ranked, len(scheduler.running)),
        ("num_queue_reqs", "gauge", ranked, len(scheduler.queue)),
        ("gen_throughput", "gauge", ranked, scheduler.gen_throughput),
        ("token_usage", "gauge", ranked, round(max(scheduler.kv_usage, scheduler.mamba_usage), 2)),
        ("full_token_usage", "gauge", ranked, scheduler.kv_usage),
        ("mamba_usage", "gauge", ranked, scheduler.mamba_usage),
        ("spec_accept_length", "gauge", ranked, accepted),
        ("spec_accept_rate", "gauge", ranked, max(0.0, accepted - 1) / scheduler.arguments.steps),
        ("generation_tokens_total", "counter", finished, scheduler.finished_tokens),
        ("num_requests_total", "counter", finished, scheduler.finished),
        ("num_aborted_requests_total", "counter", plain, scheduler.aborted),
        ("max_total_num_tokens", "gauge", ranked, KV_TOKENS),
    ]
    lines = []
    for metric, kind, labels, value in rows:
        lines += [f"# HELP sglang:{metric} SIMULATED", f"# TYPE sglang:{metric} {kind}"]
        lines.append(f"sglang:{metric}{{{labels}}} {float(value)}")
    lines += ["# HELP sglang:realtime_tokens_total SIMULATED", "# TYPE sglang:realtime_tokens_total counter"]
    for mode, value in (
        ("prefill_compute", scheduler.prefilled),
        ("decode", scheduler.decoded),
        ("prefill_cache", 0),
    ):
        labels = ranked.replace("model_name", f'mode="{mode}",model_name')
        lines.append(f"sglang:realtime_tokens_total{{{labels}}} {float(value)}")
    return "\n".join(lines) + "\n"
