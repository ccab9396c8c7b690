"""Numbers with their units, as people read them.  Pure: no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

_BARS = "▁▂▃▄▅▆▇█"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def told_number(number: float | None) -> str:
    """With separators, and with one digit after the point where it is small and not whole; ``-`` for None."""
    if number is None:
        return "-"
    whole = number >= 100 or number == round(number)
    return f"{number:,.0f}" if whole else f"{number:.1f}"


def counted(number: int, what: str) -> str:
    """So many of something, which is named in the singular: ``1 bucket``, ``2 buckets``, ``2 entries``."""
    if number == 1:
        return f"1 {what}"
    return f"{number} {what.removesuffix('y') + 'ies' if what.endswith('y') else what + 's'}"


def told_seconds(seconds: float | None) -> str:
    """A time span in the largest unit that fits, from 10 s on without a fraction; ``-`` for None."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size or (unit != "min" and seconds == size):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"


def told_bytes(number: float) -> str:
    """In the largest binary unit that fits."""
    for unit in _UNITS:
        if number < 1024 or unit == _UNITS[-1]:
            break
        number /= 1024
    return (
        f"{number:.0f} {unit}" if unit == "B" else f"{number:.3g} {unit}" if number < 1000 else f"{number:.0f} {unit}"
    )


def told_time(seconds: float) -> str:
    """An instant (seconds since 1970) in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def sparkline(values: Sequence[float], width: int) -> str:
    """The last `width` values as bars, from 0 to the largest of them."""
    shown = values[-width:]
    top = max(shown, default=0.0)
    if top <= 0:
        return _BARS[0] * len(shown)
    return "".join(_BARS[min(len(_BARS) - 1, int(max(0.0, value) / top * (len(_BARS) - 1) + 0.5))] for value in shown)
