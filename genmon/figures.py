"""How numbers are written for people. What is not known is an en dash, never 0."""

from __future__ import annotations

import math

UNKNOWN = "–"


def count(value: float | None) -> str:
    """A count with thousands separators, or k, M, G from a hundred thousand on: 902,087 reads 902k."""
    if value is None:
        return UNKNOWN
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e5, "k")):
        if abs(value) >= size:
            scaled = value / (1e3 if letter == "k" else size)
            return f"{scaled:.0f}{letter}" if scaled >= 100 else f"{scaled:.1f}{letter}"
    return f"{value:,.0f}"


def decimal(value: float | None, digits: int = 2) -> str:
    """A number with a fixed number of decimals."""
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def share(value: float | None) -> str:
    """A fraction as a whole percentage."""
    return UNKNOWN if value is None else f"{value:.0%}"


def duration(seconds: float | None) -> str:
    """Seconds as the two largest units: 3 d 4 h, 2 h 10 min, 45 s."""
    if seconds is None or math.isinf(seconds):
        return UNKNOWN
    total = max(0, round(seconds))
    days, hours, minutes = total // 86400, total // 3600 % 24, total // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min {total % 60} s" if minutes < 10 else f"{minutes} min"
    return f"{total} s"


def energy(joules: float | None) -> str:
    """Joules as J, kJ or kWh, whichever reads best."""
    if joules is None:
        return UNKNOWN
    if joules >= 3.6e5:
        return f"{joules / 3.6e6:.2f} kWh"
    return f"{joules / 1e3:.1f} kJ" if joules >= 1e3 else f"{joules:.0f} J"


def watts(power_w: float | None, limit_w: float | None) -> str:
    """Power beside its limit: 539/700 W."""
    if power_w is None:
        return f"{UNKNOWN} W"
    return f"{power_w:.0f}/{limit_w:.0f} W" if limit_w else f"{power_w:.0f} W"
