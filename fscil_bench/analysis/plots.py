"""Pictures of the analyses, in the format of their suffix. matplotlib is loaded when one is drawn."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fscil_bench.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Values = npt.NDArray[np.float64]
INCHES = 4.2
TICKS = 21  # on an axis, at most
WIDE = 20  # from the first value to the last: from here on an axis is logarithmic
# Colours for the colour-blind (Okabe and Ito), neighbours far apart in lightness; markers tell them apart in grey.
STYLES = (
    ("#000000", "o"),
    ("#E69F00", "s"),
    ("#0072B2", "^"),
    ("#56B4E9", "D"),
    ("#D55E00", "v"),
    ("#009E73", "P"),
    ("#CC79A7", "X"),
)
DASHES = ("-", "--", ":")  # where there are more lines than styles


@dataclass(frozen=True)
class Band:
    """A line with its interval."""

    x: Values
    mean: Values
    low: Values
    high: Values
    mark: tuple[float, float] | None = None  # a point to point out on it


@dataclass(frozen=True)
class Trace:
    """A line by session. One that somebody else published is dashed, with a cross where its number is in doubt."""

    name: str
    band: Band
    style: int  # the same for lines that belong together
    doubted: npt.NDArray[np.bool_] | None = None  # of what is published; None: measured


def heat_maps(
    path: Path,
    title: str,
    axes: Mapping[str, Sequence[str]],
    panels: Mapping[str, Values],
    cross: tuple[int, int] | None,
) -> None:
    """One map [first axis, second axis] a panel: a circle round the highest value, a cross at `cross`."""
    from matplotlib.patheffects import withStroke

    figure, places = _figure(len(panels), title)
    (down, rows), (across, columns) = axes.items()
    for place, (name, values) in zip(places, panels.items(), strict=True):
        image = place.imshow(values, aspect="auto", origin="lower", cmap="viridis")
        best = np.unravel_index(np.argmax(values), values.shape)
        edged = [withStroke(linewidth=4, foreground="black")]  # to be seen on light and on dark
        place.plot(best[1], best[0], "o", mfc="none", mec="white", ms=12, mew=2, path_effects=edged)
        if cross is not None:
            place.plot(cross[1], cross[0], "x", color="white", ms=8, mew=2, path_effects=edged)
        place.set_xticks(*_some(columns), rotation=90 if len(columns) > 8 else 0)
        place.set_yticks(*_some(rows))
        place.set_xlabel(across)
        place.set_ylabel(down)
        place.set_title(name)
        figure.colorbar(image, ax=place)
    _write(path, figure)


def lines(
    path: Path,
    title: str,
    across: str,
    ticks: Sequence[str],
    panels: Mapping[str, Band],
    cross: int | None,
    *,
    numeric: bool,
) -> None:
    """One line with its interval a panel, over the positions of the ticks; a dashed line at the tick `cross`.

    What is not numeric are names side by side: dots with their intervals, and no line.
    """
    figure, places = _figure(len(panels), title)
    for place, (name, band) in zip(places, panels.items(), strict=True):
        if cross is not None:
            place.axvline(band.x[cross], color="grey", ls="--", lw=1)
        if numeric:
            _draw_band(place, name, band, marker="o" if len(ticks) <= TICKS else None, ms=4)
        else:
            error = np.nan_to_num([band.mean - band.low, band.high - band.mean])
            place.errorbar(band.x, band.mean, error, fmt="o", ms=4, capsize=3)
            place.margins(x=0.2)
        if numeric and band.x[0] > 0 and band.x[-1] / band.x[0] >= WIDE:
            place.set_xscale("log")
            place.minorticks_off()
        if not numeric or len(ticks) <= TICKS:
            place.set_xticks(band.x, ticks, rotation=90 if len(ticks) > 8 else 0)
        place.set_xlabel(across)
        place.set_title(name)
    _write(path, figure)


def curves(path: Path, title: str, across: str, up: str, bands: Mapping[str, Band]) -> None:
    """Lines with intervals in one panel, named in a legend, each with its marked point.

    The first are the widest, so that of lines that lie on each other all stay visible.
    """
    figure, (place,) = _figure(1, title, scale=1.7)
    for i, (name, band) in enumerate(bands.items()):
        (colour, marker), dashes = STYLES[i % len(STYLES)], DASHES[i // len(STYLES) % len(DASHES)]
        width = 1 + 2.5 * (1 - i / len(bands))
        _draw_band(place, name, band, color=colour, ls=dashes, lw=width, marker=marker, ms=3 + 2 * width)
    place.set_xlabel(across)
    place.set_ylabel(up)
    place.grid(color="0.9", lw=0.6)
    place.legend(fontsize="small")
    _write(path, figure)


def traces(
    paths: Sequence[Path],
    title: str,
    across: str,
    up: str,
    ticks: Sequence[int],
    panels: Mapping[str, Sequence[Trace]],
) -> None:
    """One panel a key, the same lines in each, named once below; written to every path."""
    figure, places = _figure(len(panels), title)
    for place, (name, lines_of) in zip(places, panels.items(), strict=True):
        for trace in lines_of:
            _draw_trace(place, trace)
        place.set_xticks(list(ticks))
        place.set_xlim(ticks[0] - 0.3, ticks[-1] + 0.3)  # one axis for all, though some numbers begin later
        place.set_xlabel(across)
        place.set_ylabel(up)
        place.set_title(name)
        place.grid(color="0.9", lw=0.6)
        place.set_axisbelow(True)
    handles, names = places[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), 3), fontsize="small", frameon=False)
    for path in paths:
        _write(path, figure, dpi=200)


def _draw_trace(place: "Axes", trace: Trace) -> None:
    colour, marker = STYLES[trace.style % len(STYLES)]
    hollow = trace.style % 2 == 1  # and larger: of neighbours that lie on each other both stay visible
    look = {"color": colour, "marker": marker, "mfc": "none" if hollow else colour}
    if trace.doubted is None:
        _draw_band(place, trace.name, trace.band, **look, ms=7 if hollow else 4)
        return
    _draw_band(place, trace.name, trace.band, **look, ms=3, ls=(0, (4, 2)), alpha=0.7)
    place.plot(trace.band.x[trace.doubted], trace.band.mean[trace.doubted], "x", color=colour, ms=7, mew=1)


def _draw_band(place: "Axes", name: str, band: Band, **style: Any) -> None:
    """The marker is at every value, or at the marked point alone."""
    (line,) = place.plot(
        band.x, band.mean, label=name, markevery=None if band.mark is None else [], **{"lw": 1.2, **style}
    )
    place.fill_between(band.x, band.low, band.high, alpha=0.25, color=line.get_color(), lw=0)
    if band.mark is not None:
        place.plot(*band.mark, color=line.get_color(), marker=line.get_marker(), ms=line.get_markersize(), mec="white")


def _some(names: Sequence[str]) -> tuple[list[int], list[str]]:
    """The places and names of ticks: all, or so few that they can be read."""
    places = list(range(0, len(names), -(-len(names) // TICKS)))
    return places, [names[place] for place in places]


def _figure(panels: int, title: str, scale: float = 1.0) -> "tuple[Figure, list[Axes]]":
    from matplotlib.figure import Figure  # no pyplot: no global state, no display

    figure = Figure(figsize=(INCHES * scale * panels, INCHES * scale), layout="constrained")
    figure.suptitle(title, fontsize="medium")
    return figure, [figure.add_subplot(1, panels, i + 1) for i in range(panels)]


def _write(path: Path, figure: "Figure", dpi: int = 120) -> None:
    from matplotlib import rc_context

    picture = io.BytesIO()
    kind = path.suffix.removeprefix(".")
    undated = {"CreationDate": None} if kind == "pdf" else None  # the same numbers give the same file
    with rc_context({"pdf.fonttype": 42}):  # TrueType: many venues refuse Type 3
        figure.savefig(picture, format=kind, dpi=dpi, metadata=undated)
    write_bytes(path, picture.getvalue())
