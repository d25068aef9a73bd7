"""How `run` shows a result: numbers by session beside the published row, the headline, and what the words mean."""

from collections.abc import Mapping

import numpy as np

from fscil_bench.backbones.pretraining import pretraining_note
from fscil_bench.cli.render import show_notes, show_table
from fscil_bench.markdown import interval, number
from fscil_bench.metrics import HEADLINE, SHORT, Summary
from fscil_bench.published import PublishedRow, published_row
from fscil_bench.records import STANDARD
from fscil_bench.results import Result
from fscil_bench.words import ALL_DEFINITIONS, MEMORY, RANDOM_BASE, memory_and_privileges, privilege_notes


def show_result(result: Result, baseline: str | None, differences: Mapping[str, Summary]) -> None:
    name, protocol = result.configured.name, result.split.protocol
    title = f"{result.configured.label} on {protocol.name}"
    published, remark = published_row(name, protocol.name) or (None, "")
    show_table(
        f"{title}, by session",
        ["", *(str(t) for t in range(protocol.sessions + 1))],
        [*_session_rows(result), *(_published_rows(published, protocol.sessions) if published else [])],
    )
    show_table(f"{title}, headline (last session)", *_headline(result, baseline, differences))
    show_notes(ALL_DEFINITIONS.values())
    show_notes([*_conditions(result), *(_caveats(result, published, remark) if published else ())])


def _session_rows(result: Result) -> list[list[str]]:
    rows = []
    for key, title in SHORT.items():
        values = result.metrics.by_session[key]
        if result.standard is not None:
            rows.append([f"{title}, standard draw", *map(number, values[result.standard])])
        if result.random:
            rows.append([f"{title}, {_of_draws(result)}", *map(number, np.mean(values[result.random], axis=0))])
    return rows


def _published_rows(published: PublishedRow, sessions: int) -> list[list[str]]:
    rows = []
    for key, title in SHORT.items():
        if key in published.cells:
            cells = [published.cells[key].get(str(t)) for t in range(sessions + 1)]
            texts = [number(c.value) + ("?" if c.doubt else "") if c else "–" for c in cells]
            rows.append([f"{title}, published: {published.title}", *texts])
    return rows


def _headline(
    result: Result, baseline: str | None, differences: Mapping[str, Summary]
) -> tuple[list[str], list[list[str]]]:
    columns = [""]
    columns += ["standard draw"] if result.standard is not None else []
    columns += [_of_draws(result), "95 % interval", "sd"] if result.random else []
    columns += [f"minus {baseline}, paired", "95 % interval"] if differences else []
    summaries = result.summaries()
    rows = []
    for key, title in HEADLINE.items():
        row = [title]
        if result.standard is not None:
            row.append(number(result.metrics.headline[key][result.standard]))
        if key in summaries:
            row += [number(summaries[key].mean), interval(summaries[key]), number(summaries[key].sd)]
        if key in differences:
            row += [number(differences[key].mean, signed=True), interval(differences[key], signed=True)]
        rows.append(row)
    return columns, rows


def _conditions(result: Result) -> list[str]:
    """What the numbers are of: what the method may use, on which backbone, with which settings and draws."""
    configured, card = result.configured, result.backbone.card
    learned = card["session0"].get(result.split.protocol.name, {}).get("learned_head")
    head = f"its learned head scores {number(learned)} in session 0 (not in PD)" if learned else "no learned head"
    privileges, exemplars = configured.method.privileges, configured.method.exemplars
    used = [f"{MEMORY.capitalize()}: {memory_and_privileges(privileges, exemplars)}"] if privileges else []
    spread = ["Intervals: 95 %, Student-t, of the mean over draws of support images; all on this one backbone"]
    return [
        *used,
        *privilege_notes(privileges),
        *(spread if len(result.random) > 1 else ()),
        *([RANDOM_BASE] if configured.method.sampled else ()),
        f"Backbone: {result.backbone.id}; {head}",
        *filter(None, [pretraining_note(card)]),
        f"Settings: {configured.explained}",
        f"Draws: {_draws(result)}",
    ]


def _caveats(result: Result, published: PublishedRow, remark: str) -> list[str]:
    other_draw = "; another draw" if result.standard is None else ""
    return [
        f"Published row {published.title}: {published.source}; {remark}{other_draw}",
        *(
            f"? {title}, session {session}: {cell.doubt}"
            for key, title in SHORT.items()
            for session, cell in published.cells.get(key, {}).items()
            if cell.doubt
        ),
    ]


def _of_draws(result: Result) -> str:
    """What the numbers over random draws are: a mean, or those of the one draw."""
    count = len(result.random)
    return f"mean of {count} draws" if count > 1 else result.walk.draws[result.random[0]]


def _draws(result: Result) -> str:
    randoms = [result.walk.draws[i] for i in result.random]
    parts = [STANDARD] if result.standard is not None else []
    if len(randoms) > 2:
        parts.append(f"{len(randoms)} random, {randoms[0]} to {randoms[-1]}")
    else:
        parts += randoms
    return ", ".join(parts)
