"""SGLang's endpoints, the few that genmon asks; the one module of the fleet that speaks HTTP."""

from __future__ import annotations

from typing import TypeVar

import aiohttp
import msgspec
from msgspec import Struct

from genmon.errors import ServerBusy, ServerError, ServerGone
from genmon.fleet.metrics import Metrics, parse

_TIMEOUT_S = 10.0
SMOKE_TIMEOUT_S = 300.0
"""The first request may compile kernels."""
_SMOKE_TOKENS = 8
T = TypeVar("T")


class HttpStatus(ServerBusy):
    """It answered, and not with 200."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class ServerInfo(Struct, frozen=True, kw_only=True):
    """What a server says of itself. The reply also holds API keys in clear text: it is never kept whole."""

    version: str | None = None
    mtp: bool | None = None
    cap: int | None = None
    """Effective concurrency cap of one data-parallel rank, times the ranks."""
    cap_requested: int | None = None
    overlap: bool | None = None
    """Whether the overlap scheduler is on, after what SGLang settled by itself."""
    cuda_graph_max_batch: int | None = None
    simulated: bool = False


class Loads(Struct, frozen=True, kw_only=True):
    """Requests running and waiting, tokens held for them, and the last throughput, tokens/s."""

    running: int
    queued: int
    used_tokens: int
    tokens_per_s: float | None = None


class _Load(Struct):
    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    num_used_tokens: int = 0
    gen_throughput: float | None = None
    max_running_requests: int | None = None


class _LoadsReply(Struct):
    loads: list[_Load]


class _SmokeMessage(Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _SmokeChoice(Struct):
    message: _SmokeMessage


class _SmokeReply(Struct):
    choices: list[_SmokeChoice]


class SglangHttp:
    """One server's HTTP. Every call raises `ServerGone` or `ServerBusy`, nothing else."""

    def __init__(self, base_url: str, api_key: str | None) -> None:
        """`base_url` is http://host:port."""
        self.base_url = base_url.rstrip("/")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._session = aiohttp.ClientSession(
            headers=headers, timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S), trust_env=False
        )

    async def answers(self) -> bool:
        """Whether anything answers at all: `/model_info` is instant and asks no scheduler."""
        try:
            await self._get("/model_info")
        except ServerBusy:
            return True
        except ServerGone:
            return False
        return True

    async def smoke(self, model: str, timeout_s: float = SMOKE_TIMEOUT_S) -> None:
        """One short real completion with content: the only proof that a server serves.

        Raises:
            HttpStatus: it answered with another status than 200.
            ServerBusy: it answered something else, or nothing.
            ServerGone: it cannot be reached.
        """
        body = {
            "model": model,
            "messages": [{"role": "user", "content": "Say: ready."}],
            "max_tokens": _SMOKE_TOKENS,
            "temperature": 0,
            "chat_template_kwargs": {"enable_thinking": False},
        }
        raw = await self._ask("POST", "/v1/chat/completions", body, timeout_s)
        reply = _decode(raw, _SmokeReply)
        message = reply.choices[0].message if reply.choices else _SmokeMessage()
        if not ((message.content or "").strip() or (message.reasoning_content or "").strip()):
            raise ServerBusy("its smoke request was answered with nothing")

    async def info(self) -> ServerInfo:
        """Version, speculation and the effective cap; None for what another version says in another way."""
        info = _decode(await self._get("/server_info"), dict[str, object])
        states = info.get("internal_states")
        caps = [
            _whole(state.get("effective_max_running_requests_per_dp"))
            for state in (states if isinstance(states, list) else [])
            if isinstance(state, dict)
        ]
        version, no_overlap = info.get("version"), info.get("disable_overlap_schedule")
        largest = _whole(info.get("cuda_graph_max_bs_decode")) or _whole(info.get("cuda_graph_max_bs"))
        return ServerInfo(
            version=version if isinstance(version, str) else None,
            mtp=info["speculative_algorithm"] is not None if "speculative_algorithm" in info else None,
            cap=sum(cap or 0 for cap in caps) or await self._cap_from_loads(),
            cap_requested=_whole(info.get("max_running_requests")),
            overlap=not no_overlap if isinstance(no_overlap, bool) else None,
            cuda_graph_max_batch=largest,
            simulated=info.get("simulated") is True,
        )

    async def metrics(self) -> Metrics | None:
        """The metrics page; None when the server was started without --enable-metrics."""
        try:
            return parse((await self._get("/metrics")).decode(errors="replace"))
        except HttpStatus as error:
            if error.status == 404:
                return None
            raise

    async def loads(self) -> Loads:
        """`/v1/loads`, all ranks added up."""
        loads = _decode(await self._get("/v1/loads"), _LoadsReply).loads
        # Without metrics SGLang leaves the throughput at 0 for ever: that is not known, not nothing.
        throughput = sum(load.gen_throughput or 0.0 for load in loads) or None
        return Loads(
            running=sum(load.num_running_reqs for load in loads),
            queued=sum(load.num_waiting_reqs for load in loads),
            used_tokens=sum(load.num_used_tokens for load in loads),
            tokens_per_s=throughput,
        )

    async def abort(self, rid: str) -> None:
        """Abort the requests whose id begins with `rid`: SGLang matches prefixes, so ids must have one length."""
        if not rid:
            raise ValueError("an empty rid would abort every request")
        await self._ask("POST", "/abort_request", {"rid": rid}, _TIMEOUT_S)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _cap_from_loads(self) -> int | None:
        try:
            loads = _decode(await self._get("/v1/loads"), _LoadsReply).loads
        except ServerError:
            return None
        return sum(load.max_running_requests or 0 for load in loads) or None

    async def _get(self, path: str) -> bytes:
        return await self._ask("GET", path, None, _TIMEOUT_S)

    async def _ask(self, method: str, path: str, body: object, timeout_s: float) -> bytes:
        try:
            async with self._session.request(
                method, self.base_url + path, json=body, timeout=aiohttp.ClientTimeout(total=timeout_s)
            ) as response:
                content = await response.read()
                if response.status != 200:
                    words = " ".join(content.decode(errors="replace").split())[:200]
                    raise HttpStatus(response.status, f"{path} answered HTTP {response.status}: {words}")
                return content
        except TimeoutError as error:
            raise ServerGone(f"{self.base_url}{path} did not answer within {timeout_s:.0f} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ServerGone(f"{self.base_url} cannot be reached: {error or type(error).__name__}") from error


def _decode(raw: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ServerBusy(f"the reply is not what SGLang sends: {error}") from error


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
