"""What is known of a run beside its states, for the tells."""

from __future__ import annotations

from datetime import datetime

from genmon.config.schema import RunConfig
from genmon.fleet.model import has_mtp_head
from genmon.tells.inputs import RunFacts


def run_facts(config: RunConfig) -> RunFacts:
    """The model, how it is quantised, whether it has an MTP head, and the deadline."""
    deadline = config.tells.deadline
    return RunFacts(
        model=config.model.name,
        quantisation=str(config.servers.flags.get("quantization", "")),
        mtp_head=has_mtp_head(config.model.path),
        deadline=datetime.fromisoformat(deadline).astimezone().timestamp() if deadline else None,
    )
