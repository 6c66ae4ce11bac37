"""The page of a run: one file that shows counts, plots, and the first conversations to read.

It is complete in itself and loads nothing; everything a model, a tool or a dataset said is escaped.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import jinja2
import msgspec
import pygal
from markupsafe import Markup
from pygal.style import Style

from hermes.batch.folder import RunMeta
from hermes.batch.report import ReportFold
from hermes.batch.statistics import Tally

__all__ = ["bins", "page"]

# Importing pygal hooks a finder of the old kind into every later import of the program, for maps unused here.
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "pygal"]

#: Bars of a histogram.
BINS = 20

_STYLE = Style(
    background="transparent",
    plot_background="transparent",
    foreground="#333",
    foreground_strong="#111",
    foreground_subtle="#888",
    colors=("#2f6f9f", "#c0572e", "#5b8c3a"),
    font_family="sans-serif",
    label_font_size=13,
    major_label_font_size=13,
    title_font_size=17,
    tooltip_font_size=12,
)


def page(meta: RunMeta, tally: Tally, fold: ReportFold, pending: int) -> bytes:
    """Return the page of a run, as UTF-8."""
    source = files("hermes.batch").joinpath("report.html.j2").read_text("utf-8")
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(source)
    ended = tally.kept + tally.rejected.total() + tally.failed.total()
    text = template.render(
        name=meta.run_name,
        settings=[
            (key, _setting(value))
            for key, value in msgspec.to_builtins(meta.settings).items()
            if value not in (None, "", False, [], ()) and key not in ("run_name", "api_key", "ephemeral_system_prompt")
        ],
        counts=[
            ("kept", tally.kept),
            ("rejected", tally.rejected.total()),
            ("failed", tally.failed.total()),
            ("pending", pending),
        ],
        total=ended + pending,
        usage=tally.usage,
        api_calls=tally.api_calls,
        charts=[Markup(chart) for chart in _charts(tally, fold)],
        rows=fold.shown,
        more=max(ended - len(fold.shown), 0),
    )
    return text.encode("utf-8", "replace")


def _setting(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _charts(tally: Tally, fold: ReportFold) -> list[str]:
    charts = [
        _histogram("Tokens of a rollout", fold.tokens.counts(), "tokens"),
        _histogram("Model calls of a rollout", fold.turns.counts(), "calls"),
        _histogram("Seconds of a rollout", fold.seconds.counts(), "seconds"),
        _scores(fold.tenths),
        _tools(fold.tools),
        _reasons(tally.rejected, tally.failed),
    ]
    return [chart for chart in charts if chart]


def _render(chart: Any) -> str:
    drawn = str(chart.render(is_unicode=True, disable_xml_declaration=True))
    # Left over without its scripts: the settings they would read.
    return re.sub(r"<script\b.*?</script>", "", drawn, flags=re.DOTALL)


def _plain(kind: Any, title: str, **more: Any) -> Any:
    # `js` would load two scripts from elsewhere; without it the page stays alone.
    return kind(title=title, js=[], style=_STYLE, width=560, height=330, truncate_label=-1, **more)


def bins(values: Mapping[float, int]) -> list[tuple[float, float, int]]:
    """Return (from, to, count) for at most 20 bins of equal width over `values`, which came so often each; whole
    numbers get whole borders."""
    if not values:
        return []
    low, high = min(values), max(values)
    whole = all(float(value).is_integer() for value in values)
    if low == high:
        return [(low, high, sum(values.values()))]
    width = (high - low) / BINS
    if whole:
        width = max(1.0, float(-(-(high - low + 1) // BINS)))
    counts: Counter[int] = Counter()
    for value, count in values.items():
        counts[min(int((value - low) // width), BINS - 1)] += count
    return [(low + place * width, low + (place + 1) * width, counts[place]) for place in range(max(counts) + 1)]


def _histogram(title: str, values: Mapping[float, int], unit: str) -> str:
    found = bins(values)
    if not found:
        return ""
    chart = _plain(pygal.Bar, title, show_legend=False, x_title=unit, y_title="rollouts", spacing=4)
    # A bar is named by where it begins: ranges would not fit below it.
    chart.x_labels = [f"{low:.3g}" if low < 1000 else f"{low:.0f}" for low, _, _ in found]
    chart.x_labels_major_count = 8
    chart.show_minor_x_labels = len(found) <= 10
    chart.show_minor_y_labels = False
    chart.add(unit, [count for _, _, count in found])
    return _render(chart)


def _scores(counts: Mapping[int, int]) -> str:
    if not counts:
        return ""
    chart = _plain(pygal.Bar, "Scores", show_legend=False, x_title="score, from", y_title="rollouts", spacing=4)
    chart.x_labels = [f"{place / 10:g}" for place in range(11)]
    chart.add("score", [counts.get(place, 0) for place in range(11)])
    return _render(chart)


def _tools(tools: dict[str, list[int]]) -> str:
    if not tools:
        return ""
    names = sorted(tools, key=lambda name: -sum(tools[name]))[:15]
    chart = _plain(pygal.HorizontalStackedBar, "Calls of tools", legend_at_bottom=True)
    chart.x_labels = list(reversed(names))
    chart.add("succeeded", [tools[name][0] for name in reversed(names)])
    chart.add("failed", [tools[name][1] for name in reversed(names)])
    return _render(chart)


def _reasons(rejected: Counter[str], failed: Counter[str]) -> str:
    found = [(f"rejected: {name}", count) for name, count in rejected.most_common()]
    found += [(f"failed: {name}", count) for name, count in failed.most_common()]
    if not found:
        return ""
    chart = _plain(pygal.HorizontalBar, "Why rows were not kept", show_legend=False)
    chart.x_labels = [name for name, _ in reversed(found)]
    chart.add("rows", [count for _, count in reversed(found)])
    return _render(chart)
