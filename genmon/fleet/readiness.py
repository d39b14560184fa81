"""When a launched server is ready: it has answered a short real completion, on a port that is its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from genmon.errors import ServerBusy, ServerError
from genmon.fleet.groups import Groups
from genmon.fleet.http import SMOKE_TIMEOUT_S, HttpStatus, ServerInfo, SglangHttp
from genmon.fleet.logtail import Diagnosis, End
from genmon.fleet.ports import is_listened_on_by
from genmon.fleet.process import ServerProcess
from genmon.fleet.spec import ServerSpec

_POLL_S = 0.25
_SMOKE_TRIES = 3


async def prove(
    process: ServerProcess, spec: ServerSpec, http: SglangHttp, groups: Groups, listening: Callable[[], None]
) -> ServerInfo | Diagnosis | None:
    """Wait for the port, then for the smoke request.

    `listening` is called once, when the port has answered.

    Returns:
        What the server says of itself when it is ready, why it is not, or None when its process ended by itself.
    """
    deadline = time.monotonic() + spec.start_timeout_s
    last, refusals, heard = "its port stayed closed", 0, False
    while not await process.ended(_POLL_S):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return Diagnosis(End.START_TIMEOUT, f"not ready after {spec.start_timeout_s:.0f} s: {last}", True)
        if not await http.answers():
            continue
        if not heard:
            heard = True
            if await _is_a_stranger(process, groups):
                words = f"port {process.port} was taken by another process while the model was loading"
                return Diagnosis(End.PORT_TAKEN, words, True)
            last = "its smoke request was not answered"
            listening()
        try:
            await http.smoke(spec.model_name, min(SMOKE_TIMEOUT_S, left_s))
        except ServerError as error:
            if time.monotonic() < deadline:  # one cut short by the deadline says less than the one before
                last = str(error)
            refusals += _is_refusal(error)
            if refusals == _SMOKE_TRIES:
                return Diagnosis(End.SMOKE_FAILED, f"it started and does not serve: {last}", True)
            continue
        try:
            return await http.info()
        except ServerError:
            return ServerInfo()  # it serves: that its own words cannot be read hinders nothing
    return None


async def _is_a_stranger(process: ServerProcess, groups: Groups) -> bool:
    """Whether the port is answered by somebody else's process: it would serve another model under our name."""
    pids = await asyncio.to_thread(groups.processes, process.launch)
    return await asyncio.to_thread(is_listened_on_by, process.port, pids) is False


def _is_refusal(error: ServerError) -> bool:
    """Whether it would be the same the next time: an answer, and not "later"."""
    later = isinstance(error, HttpStatus) and (error.status >= 500 or error.status == 429)
    return isinstance(error, ServerBusy) and not later
