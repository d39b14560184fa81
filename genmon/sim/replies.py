"""The bodies of SGLang's replies, as versions 0.5.11 and 0.5.23 word them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from genmon.job.row import Json
from genmon.sim.answer import Said, said, verify_steps
from genmon.sim.arguments import NEW, Arguments, numbers
from genmon.sim.decode import Request, Scheduler

EOS = 248_046
"""Token id of the end of a turn."""
_WEIGHTS_GB = 51.05
_GRAPH_GB = 1.09


class Replies:
    """What one server answers; `scheduler` is asked at each call."""

    def __init__(self, scheduler: Scheduler, version: str) -> None:
        """`version` is the SGLang version whose words are used."""
        self._scheduler, self._version = scheduler, version
        self._new = numbers(version) >= NEW

    def completion(self, request: Request, model: str, body: dict[str, Json]) -> dict[str, Json]:
        """A chat completion."""
        answer = said(request)
        nothing = "" if self._new else None
        message: dict[str, Json] = {
            "role": "assistant",
            "content": " ".join(answer.content) or nothing,
            "reasoning_content": " ".join(answer.reasoning) or None,
        }
        if not self._new:
            message["tool_calls"] = None
        choice: dict[str, Json] = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": answer.finish,
            "matched_stop": EOS if answer.finish == "stop" else None,
        }
        metadata: dict[str, Json] = {"weight_version": "default"}
        if self._new:
            metadata["weight_versions"] = [{"version": "default", "start": 0, "end": request.completion_tokens}]
        reply: dict[str, Json] = {
            "id": request.rid,
            "object": "chat.completion",
            "created": int(time.time()),
            "model": model,
            "choices": [choice],
            "usage": self.usage(request),
            "metadata": metadata,
        }
        if self._new and body.get("return_meta_info"):
            choice["meta_info"] = self._meta_info(request, answer)
        if self._new and body.get("return_spec_tokens_details") and self._scheduler.arguments.mtp:
            reply["sglext"] = {"spec_tokens_details": self._spec_details(request)}
        return reply

    def usage(self, request: Request) -> dict[str, Json]:
        """Token counts of a request."""
        tokens, thought = request.completion_tokens, said(request).reasoning_tokens
        counts: dict[str, Json] = {
            "prompt_tokens": request.prompt_tokens,
            "total_tokens": request.prompt_tokens + tokens,
            "completion_tokens": tokens,
            "prompt_tokens_details": None,
            "reasoning_tokens": thought,
        }
        if self._new and thought:
            counts["completion_tokens_details"] = {"reasoning_tokens": thought}
        return counts

    def server_info(self) -> dict[str, Json]:
        """`/server_info`: its arguments, API key included, at the top and again in the scheduler's state."""
        scheduler, arguments = self._scheduler, self._scheduler.arguments
        settled = self._server_args(arguments)
        memory: dict[str, Json] = {
            "weight": _WEIGHTS_GB,
            "kvcache": round(scheduler.kv_tokens * 64 / 2**20, 2),  # 64 KiB a token
            "token_capacity": scheduler.kv_tokens,
            "graph": {"prefill": 0.0, "decode": _GRAPH_GB} if self._new else _GRAPH_GB,
        }
        state: dict[str, Json] = {
            **settled,
            "last_gen_throughput": scheduler.gauges.gen_throughput,
            "memory_usage": memory,
            "effective_max_running_requests_per_dp": arguments.cap,
        }
        if scheduler.lifetime_acceptance is not None:
            state["avg_spec_accept_length"] = scheduler.lifetime_acceptance
        info: dict[str, Json] = {
            **settled,
            "status": "ready",
            "max_total_num_tokens": scheduler.kv_tokens,
            "max_req_input_len": arguments.context_length - 6,
            "internal_states": [state],
            "version": self._version,
            "simulated": True,
        }
        if self._new:
            info |= {"startup_time": {"load_weight": 0.4, "scheduler_e2e": 1.8}, "frontend": "python"}
        return info

    def model_info(self) -> dict[str, Json]:
        """`/model_info`."""
        arguments = self._scheduler.arguments
        info: dict[str, Json] = {
            "model_path": arguments.model_path,
            "tokenizer_path": arguments.model_path,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": "default",
            "has_image_understanding": True,
            "has_audio_understanding": False,
            "model_type": "qwen3_5",
            "architectures": ["Qwen3_5ForConditionalGeneration"],
            "simulated": True,
        }
        if self._new:
            info |= {
                "served_model_name": arguments.served_model_name,
                "load_format": "auto",
                "reasoning_parser": arguments.reasoning_parser,
                "tool_call_parser": None,
                "disaggregation_mode": "null",
            }
        return info

    def models(self) -> dict[str, Json]:
        """`/v1/models`."""
        name = self._scheduler.arguments.served_model_name
        card: dict[str, Json] = {
            "id": name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": name,
            "parent": None,
            "max_model_len": self._scheduler.arguments.context_length,
        }
        return {"object": "list", "data": [card]}

    def loads(self) -> dict[str, Json]:
        """`/v1/loads`, of now. Without metrics the throughput stays 0 for ever, as in SGLang."""
        scheduler = self._scheduler
        metrics = scheduler.arguments.metrics
        running, waiting, held = len(scheduler.running), len(scheduler.queue), scheduler.tokens_held
        usage = round(held / scheduler.kv_tokens, 4)
        throughput = round(scheduler.gauges.gen_throughput, 2) if metrics else 0.0
        load: dict[str, Json] = {
            "num_running_reqs": running,
            "num_waiting_reqs": waiting,
            "num_used_tokens": held,
            "num_total_tokens": held + sum(request.prompt_tokens for request in scheduler.queue),
            "max_total_num_tokens": scheduler.kv_tokens,
            "token_usage": usage,
            "gen_throughput": throughput,
            "cache_hit_rate": 0.0,
            "utilization": 0.0,
            "max_running_requests": scheduler.arguments.cap,
            "memory": {
                "weight_gb": _WEIGHTS_GB,
                "kv_cache_gb": round(scheduler.kv_tokens * 64 / 2**20, 2),
                "graph_gb": _GRAPH_GB,
                "token_capacity": scheduler.kv_tokens,
            },
            "queues": {"waiting": waiting, "grammar": 0, "paused": 0, "retracted": 0},
        }
        if scheduler.lifetime_acceptance is not None:
            rate = scheduler.accept_rate if metrics else 0.0
            load["speculative"] = {"accept_length": scheduler.lifetime_acceptance, "accept_rate": rate}
        stamp = datetime.now(UTC).isoformat()
        if self._new:
            load |= {"timestamp": time.time(), "dp_rank": 0}
            return {
                "timestamp": stamp,
                "version": self._version,
                "accelerator": "H200 (SIMULATED)",
                "num_accelerators": 1,
                "loads": [load],
            }
        total = running + waiting
        load["num_total_reqs"] = total
        aggregate: dict[str, Json] = {
            "total_running_reqs": running,
            "total_waiting_reqs": waiting,
            "total_reqs": total,
            "total_used_tokens": held,
            "total_tokens": load["num_total_tokens"],
            "avg_token_usage": usage,
            "avg_throughput": throughput,
            "avg_utilization": 0.0,
        }
        return {
            "timestamp": stamp,
            "version": self._version,
            "dp_rank_count": 1,
            "loads": [load],
            "aggregate": aggregate,
        }

    def get_load(self) -> list[Json]:
        """`/get_load`, which only 0.5.11 has."""
        scheduler = self._scheduler
        return [
            {
                "dp_rank": None,
                "num_reqs": len(scheduler.running) + len(scheduler.queue),
                "num_waiting_reqs": len(scheduler.queue),
                "num_tokens": scheduler.tokens_held,
                "num_pending_tokens": 0,
                "ts_tic": time.monotonic(),
            }
        ]

    def _server_args(self, arguments: Arguments) -> dict[str, Json]:
        strategy = "mamba_radix_cache_strategy" if self._new else "mamba_scheduler_strategy"
        mtp = arguments.mtp
        return {
            "model_path": arguments.model_path,
            "served_model_name": arguments.served_model_name,
            "host": "127.0.0.1",
            "port": arguments.port,
            "api_key": arguments.api_key,
            "context_length": arguments.context_length if arguments.context_asked else None,
            "reasoning_parser": arguments.reasoning_parser,
            "enable_metrics": arguments.metrics,
            "mem_fraction_static": arguments.mem_fraction_static or 0.85,
            "max_running_requests": arguments.cap_requested,
            "disable_radix_cache": not arguments.radix_cache,
            # 0.5.11 switches it off by itself in this case, and says nothing.
            "disable_overlap_schedule": arguments.radix_cache and arguments.strategy == "no_buffer",
            strategy: arguments.strategy,
            "speculative_algorithm": "EAGLE" if mtp else None,  # what SGLang makes of NEXTN
            "speculative_num_steps": arguments.steps if mtp else None,
            "speculative_eagle_topk": arguments.topk if mtp else None,
            "speculative_num_draft_tokens": arguments.draft_tokens if mtp else None,
        }

    def _meta_info(self, request: Request, answer: Said) -> dict[str, Json]:
        meta: dict[str, Json] = {
            "id": request.rid,
            "finish_reason": {"type": answer.finish, "length": request.length},
            "prompt_tokens": request.prompt_tokens,
            "completion_tokens": request.completion_tokens,
            "cached_tokens": 0,
            "reasoning_tokens": answer.reasoning_tokens,
            "weight_version": "default",
            "total_retractions": 0,
            "e2e_latency": time.monotonic() - request.arrived,
        }
        return meta | (self._spec_details(request) if self._scheduler.arguments.mtp else {})

    def _spec_details(self, request: Request) -> dict[str, Json]:
        """A request's own acceptance, by the names of 0.5.23; 0.5.11 tells it nowhere in the chat API."""
        steps = verify_steps(request)
        correct, proposed = request.completion_tokens - steps, steps * self._scheduler.arguments.steps
        return {
            "spec_accept_length": request.completion_tokens / steps,
            "spec_accept_rate": correct / proposed,
            "spec_num_correct_drafts": correct,
            "spec_num_proposed_drafts": proposed,
            "spec_verify_ct": steps,
        }


def error(message: str, kind: str = "BadRequestError", code: int = 400) -> dict[str, Json]:
    """The body of a refusal."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}
