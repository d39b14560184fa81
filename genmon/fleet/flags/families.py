"""Model families, as far as launch flags go: which keep a mamba state, and which have an MTP head of their own.

Source: the architectures for which SGLang 0.5.23 loads a draft from the target's own checkpoint
(`configs/model_config.py`, `arg_groups/speculative_hook.py`), and the hybrids that 0.5.11 knows.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct


class Family(StrEnum):
    """What kind of model it is."""

    HYBRID = "hybrid"
    """Qwen3.5, 3.6 and Next: linear attention beside full attention, a mamba state a request, an MTP head."""
    BUILT_IN = "built_in"
    """DeepSeek-style: full attention, with an MTP head in the checkpoint."""
    PLAIN = "plain"
    """No MTP head that SGLang would load."""
    UNKNOWN = "unknown"
    """Neither its config.json nor its name says, or a hybrid for which no rules were read."""


class _ModelCard(Struct):
    architectures: list[str] = []
    num_nextn_predict_layers: int | None = None


_HYBRID_NAME = re.compile(r"qwen3[._-]?(5|6|next)", re.IGNORECASE)
_BUILT_IN_NAME = re.compile(r"deepseek-(v3|r1)|glm-(4\.[5-9]|5)|mimo-", re.IGNORECASE)
_HYBRID = ("Qwen3_5", "Qwen3Next")
_BUILT_IN = (
    "DeepseekV3For",
    "DeepseekV32For",
    "DeepseekV4For",
    "Ernie4_5_MoeFor",
    "ExaoneMoEFor",
    "Glm4MoeFor",
    "Glm4MoeLiteFor",
    "GlmMoeDsaFor",
    "HYV3For",
    "LongcatFlashFor",
    "MiMoFor",
    "MiMoV2",
    "MistralLarge3For",
    "PixtralFor",
    "Step3p5For",
)
_NOT_READ = (
    "BailingMoe",
    "FalconH1",
    "GraniteMoeHybrid",
    "InternS2",
    "Jet",
    "Kimi",
    "Lfm2",
    "MiniCPMV",
    "Nemotron",
    "Qwen4Exp",
)
"""Architectures, by how their names begin, that may keep a mamba state, and for which the rules were not read."""


def family(model: str) -> Family:
    """The family of a model, by its config.json where `model` is a folder with one, else by its name."""
    try:
        card = msgspec.json.decode((Path(model) / "config.json").read_bytes(), type=_ModelCard)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        if _HYBRID_NAME.search(model):
            return Family.HYBRID
        return Family.BUILT_IN if _BUILT_IN_NAME.search(model) else Family.UNKNOWN
    names = card.architectures
    if any(name.startswith(_HYBRID) for name in names):
        return Family.HYBRID
    if any(name.startswith(_NOT_READ) for name in names):
        return Family.UNKNOWN
    has_head = card.num_nextn_predict_layers != 0
    return Family.BUILT_IN if has_head and any(name.startswith(_BUILT_IN) for name in names) else Family.PLAIN
