"""Whether a model has a head for multi-token prediction, by its config.json or by its name."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from msgspec import Struct

_FAMILIES = re.compile(r"qwen3[._-]?(5|6|next)|deepseek-(v3|r1)|glm-(4[._-]?[5-9]|5)|mimo", re.IGNORECASE)
"""Published with an MTP head."""


class _Text(Struct, frozen=True):
    mtp_num_hidden_layers: int | None = None
    num_nextn_predict_layers: int | None = None


class _Card(_Text, frozen=True):
    text_config: _Text = _Text()


def has_mtp_head(model: str) -> bool | None:
    """Whether `model` (a folder or a hub name) can be served with MTP; None when neither config nor name says."""
    try:
        card = msgspec.json.decode((Path(model) / "config.json").read_bytes(), type=_Card)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return True if _FAMILIES.search(model) else None
    said = [
        number
        for part in (card, card.text_config)
        for number in (part.mtp_num_hidden_layers, part.num_nextn_predict_layers)
        if number is not None
    ]
    return any(said) if said else None
