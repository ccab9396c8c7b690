"""Pictures of the figures in results.json, as SVG files in ``benchmarks/plots/``: ``python -m benchmarks.plots``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FOLDER = Path(__file__).resolve().parent / "plots"
_BLUE, _GREY = "#2a6f97", "#b8c4cc"


@dataclass(frozen=True, slots=True)
class Bars:
    """One bar a figure, ours in colour, quartiles as whiskers."""

    title: str
    axis: str
    keys: Mapping[str, str]
    """Label -> key of the figure; the first is ours."""
    mark: float | None = None
    """Where to draw a line across."""

    def measured(self, found: results.Figures) -> dict[str, str]:
        """The labels and keys that there are figures for."""
        return {label: key for label, key in self.keys.items() if found.get(key) is not None}

    def draw(self, axes: Axes, found: results.Figures) -> None:
        """Draw what was measured."""
        keys = self.measured(found)
        values = [float(found[key]) for key in keys.values()]
        below = [value - found.get(f"{key}_low", value) for key, value in zip(keys.values(), values, strict=True)]
        above = [found.get(f"{key}_high", value) - value for key, value in zip(keys.values(), values, strict=True)]
        colours = [_BLUE if label == next(iter(self.keys)) else _GREY for label in keys]
        places = range(len(values))
        axes.barh(places, values, xerr=[below, above], color=colours, ecolor="#555555", capsize=3)
        axes.set_yticks(places, list(keys))
        axes.invert_yaxis()
        axes.set_xlabel(self.axis)
        if self.mark is not None:
            axes.axvline(self.mark, color="#555555", linewidth=0.8, linestyle=":")


@dataclass(frozen=True, slots=True)
class Curves:
    """What grows, over what it grows with; both axes logarithmic."""

    title: str
    axis: str
    key: str
    """Of a list of points, each a mapping of the axis and of one figure a curve."""
    over: str

    def measured(self, found: results.Figures) -> list[Mapping[str, Any]]:
        """The points."""
        return list(found.get(self.key) or [])

    def draw(self, axes: Axes, found: results.Figures) -> None:
        """Draw every curve there are points for."""
        points = self.measured(found)
        for name in [name for name in points[0] if name != self.over]:
            known = [point for point in points if point.get(name) is not None]
            axes.plot([point[self.over] for point in known], [point[name] for point in known], "o-", label=name)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(self.over)
        axes.set_ylabel(self.axis)
        axes.legend()


_CONTENDERS = {
    "sessioncache": "turn{}",
    "redis-py, json": "turn_naive{}",
    "redis-py, msgspec": "turn_naive_msgspec{}",
    "physical limit": "turn_limit{}",
    "write-through": "write_through{}",
    "write-through, 2 ms away": "write_through_delay{}",
}
PLOTS: Mapping[str, Bars | Curves] = {
    "turn-rate": Bars(
        "Turns a second, 64 in flight", "turns/s", {label: key.format("_rate_64") for label, key in _CONTENDERS.items()}
    ),
    "turn-latency": Bars(
        "A turn, 1 in flight", "µs, p50", {label: key.format("_p50_us") for label, key in _CONTENDERS.items()}
    ),
    "memory": Bars(
        "A clean hot session ÷ a bare hash of the same data (Valkey)",
        "ratio",
        {
            "10 keys x 100 B": "memory_ratio",
            "10 keys x 1,000 B": "memory_ratio_10x1000",
            "50 keys x 50 B": "memory_ratio_50x50",
        },
        mark=1,
    ),
    "sizes": Bars(
        "A large session ÷ one of 10 keys",
        "ratio",
        {
            "get, unchanged (1,000 keys)": "get_large_over_small",
            "set (10,000 keys)": "set_large_over_small",
            "flush of a key (10,000 keys)": "flush_large_over_small",
        },
        mark=1,
    ),
    "peers": Bars(
        "Turns a second, 64 in flight, beside others",
        "turns/s",
        {
            "sessioncache": "peers_ours_64_per_s",
            "langgraph, Postgres store": "peers_langgraph_64_per_s",
            "google-adk, database": "peers_adk_sql_64_per_s",
            "google-adk, Redis": "peers_adk_redis_64_per_s",
            "Django, cached_db": "peers_django_64_per_s",
        },
    ),
    "growth": Curves("Calls as hot sessions grow in number", "µs, p50", "growth", "sessions"),
    "growth-keys": Curves("Calls as a session grows", "µs, p50", "growth_keys", "keys"),
}
"""By the name of the file."""


def drawable(found: results.Figures) -> list[str]:
    """The plots that there are figures for."""
    return [name for name, plot in PLOTS.items() if plot.measured(found)]


def draw(found: results.Figures | None = None, folder: Path = FOLDER) -> Path:
    """Draw what was measured; the folder."""
    figures = results.read() if found is None else found
    folder.mkdir(exist_ok=True)
    for name in drawable(figures):
        _save(folder / f"{name}.svg", PLOTS[name], figures)
    return folder


def _save(path: Path, plot: Bars | Curves, found: results.Figures) -> None:
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    picture = Figure(figsize=(7.5, 3.6), layout="constrained")
    FigureCanvasSVG(picture)
    axes = picture.add_subplot()
    axes.set_title(plot.title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    plot.draw(axes, found)
    picture.savefig(path)


def main() -> None:
    """Run as a command."""
    print(draw())


if __name__ == "__main__":
    main()
