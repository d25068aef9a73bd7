"""The tables of a leaderboard, as text: Markdown to read, CSV and JSON to compute with. Pure functions of the records.

Costs go into files of their own, because times differ from machine to machine.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fscil_bench.files import write_bytes
from fscil_bench.leaderboard.comparison import Comparison
from fscil_bench.leaderboard.episode_comparison import DEFINITION as EPISODES_DEFINITION
from fscil_bench.leaderboard.episode_comparison import NAMES, NO_EPISODES
from fscil_bench.leaderboard.episode_tables import episode_cells, episode_lines, episode_section, episodes_of
from fscil_bench.leaderboard.rows import EpisodeRow, Row, ranked, row_key
from fscil_bench.leaderboard.statistics import COMPARED, TESTS
from fscil_bench.markdown import csv_text, number, rounded, spread, summary_cells, table
from fscil_bench.metrics import DEFINITIONS, HEADLINE, SHORT, summarise
from fscil_bench.protocols import Protocol, load_protocol, protocol_names
from fscil_bench.published import PublishedRow, published_rows
from fscil_bench.words import ALL_DEFINITIONS, MEMORY, RANDOM_BASE, privilege_notes

MADE = "Generated from records/ by `fscil-bench leaderboard update`; do not edit."


def render_tables(rows: Sequence[Row], episodes: Sequence[EpisodeRow] = ()) -> dict[str, str]:
    """File name -> content, for every protocol that has rows, the few-shot episodes, and the costs of all."""
    files: dict[str, str] = {}
    for name in sorted({row.protocol for row in (*rows, *episodes)}):
        of_protocol = ranked([row for row in rows if row.protocol == name])
        few_shot = [row for row in episodes if row.protocol == name]
        files[f"{name}.md"] = _markdown(load_protocol(name), of_protocol, few_shot)
        if of_protocol:
            files[f"{name}.csv"] = csv_text([_flat(row, few_shot) for row in of_protocol])
            nested = [_nested(row, few_shot) for row in of_protocol]
            files[f"{name}.json"] = json.dumps(nested, indent=1, allow_nan=False) + "\n"
    if episodes:
        files["episodes.csv"] = csv_text(episode_lines(episodes))
    files["costs.csv"] = csv_text([_cost(row) for row in sorted((*rows, *episodes), key=row_key) if not row.failed])
    return files


def write_tables(root: Path, rows: Sequence[Row], episodes: Sequence[EpisodeRow] = ()) -> None:
    """Bring the table files under `root` in line with the rows; those that have no rows any more are removed."""
    wanted = render_tables(rows, episodes)
    for name in stale_tables(root, rows, episodes):
        if name in wanted:
            write_bytes(root / name, wanted[name].encode())
        else:
            (root / name).unlink()


def stale_tables(root: Path, rows: Sequence[Row], episodes: Sequence[EpisodeRow] = ()) -> list[str]:
    """The table files under `root` that are not what the records give."""
    wanted = render_tables(rows, episodes)
    possible = [
        "costs.csv",
        "episodes.csv",
        *(f"{name}.{kind}" for name in protocol_names() for kind in ("md", "csv", "json")),
    ]
    there = {name: (root / name).read_bytes() for name in possible if (root / name).is_file()}
    return sorted(name for name in {*wanted, *there} if wanted.get(name, "").encode() != there.get(name))


def _markdown(protocol: Protocol, rows: Sequence[Row], episodes: Sequence[EpisodeRow]) -> str:
    parts = [f"# {protocol.title}", MADE]
    for seen in (False, True):
        group = [row for row in rows if row.seen_new_classes == seen]
        few_shot = [row for row in episodes if row.seen_new_classes == seen]
        if seen and (group or few_shot):
            parts.append("# Ranked apart: backbones whose pretraining has seen new classes or test images")
        for bank in dict.fromkeys(row.bank for row in (*group, *few_shot)):
            of_bank = [row for row in group if row.bank == bank]
            parts += _backbone_section(protocol, of_bank, [row for row in few_shot if row.bank == bank])
    parts += _published_section(protocol)
    privileges = privilege_notes(name for row in (*rows, *episodes) for name in row.privileges)
    words = (*ALL_DEFINITIONS.values(), EPISODES_DEFINITION, NO_EPISODES, *privileges, TESTS)
    parts += ["## What the words mean", "\n".join(f"- {line}" for line in words)]
    parts.append(
        "- Intervals are 95 % Student-t intervals of the mean over random draws of the support images, or over "
        "episodes; sd is over draws. They and the tests are conditional on one backbone.\n"
        f"- {RANDOM_BASE}.\n"
        "- Incomplete rows have fewer random draws than a full row (100, or 10 for costly methods) or fewer episodes "
        "(10,000, or 2,000): they are listed, not averaged. Pairs are the episodes that both rows have."
    )
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _backbone_section(protocol: Protocol, rows: Sequence[Row], episodes: Sequence[EpisodeRow]) -> list[str]:
    first = (*rows, *episodes)[0]
    facts = first.record["backbone"]
    overlap = facts["overlap"]
    selection = facts["selection"]["rule"] + (" (leaky)" if facts["selection"]["leaky"] else "")
    about = [
        f"pretraining: {facts['pretraining']}; overlap with new classes: {overlap['kind']}",
        f"epoch selected by: {selection}; augmentation: {', '.join(facts['augmentation']) or 'none'}",
        f"bank sha256: {facts['bank_sha256']}",
    ]
    measured = [row for row in rows if not row.failed and row.complete]
    parts = [f"## Backbone {first.backbone}", "\n".join(f"- {line}" for line in about)]
    title = "### Last session: mean over random draws ± half of its 95 % interval (sd over draws)"
    parts += [title, _headline_table(rows, episodes)] if rows else []
    if any(row.record["standard"] for row in measured):
        parts += ["### Last session: the standard draw", _standard_table(measured)]
    comparison = Comparison.of(measured, None, "hmean")
    if comparison.baseline is not None and len(measured) > 1:
        parts += [f"### Paired differences from {comparison.baseline.label}, same draws", _difference_table(comparison)]
    parts += episode_section(protocol, episodes)
    for metric, name in SHORT.items() if measured else ():
        parts += [f"### {name} by session, mean over random draws", _session_table(protocol, measured, metric)]
    return parts


def _headline_table(rows: Sequence[Row], episodes: Sequence[EpisodeRow]) -> str:
    columns = ["method", MEMORY, *HEADLINE.values(), *NAMES.values(), "draws"]
    lines = []
    for row in rows:
        if row.failed:
            blanks = ["–"] * (len(columns) - 2)
            lines.append([f"{row.shown} (failed: {row.failed})", row.memory, *blanks])
            continue
        cells = [spread(summarise(row.headline(metric))) if row.complete else "–" for metric in HEADLINE]
        lines.append([row.shown, row.memory, *cells, *episode_cells(row, episodes), str(len(row.draws))])
    return table(columns, lines, left=2)


def _standard_table(rows: Sequence[Row]) -> str:
    lines = [[row.shown, *(number(row.standard(metric)) for metric in HEADLINE)] for row in rows]
    return table(["method", *HEADLINE.values()], lines)


def _difference_table(comparison: Comparison) -> str:
    columns = ["method", "pairs", *(text for metric in COMPARED for text in (f"Δ {SHORT[metric]} (95 %)", "p, Holm"))]
    return table(columns, comparison.difference_cells())


def _session_table(protocol: Protocol, rows: Sequence[Row], metric: str) -> str:
    lines = [[row.shown, *(number(summarise(v).mean) for v in row.by_session(metric).T)] for row in rows]
    return table(["method", *(str(t) for t in range(protocol.sessions + 1))], lines)


def _published_section(protocol: Protocol) -> list[str]:
    """AvgAcc by session and last-session numbers as the literature prints them, doubts as footnotes."""
    notes: list[str] = []

    def cell(row: PublishedRow, metric: str, session: str) -> str:
        found = row.cells.get(metric, {}).get(session)
        if found is None:
            return "–"
        if not found.doubt:
            return number(found.value)
        if found.doubt not in notes:
            notes.append(found.doubt)
        return f"{number(found.value)} [{notes.index(found.doubt) + 1}]"

    sessions = [str(t) for t in range(protocol.sessions + 1)]
    columns = ["row", "source", *(f"AvgAcc {t}" for t in sessions), "HMean", "NAcc", "PD", *NAMES.values()]
    lines = []
    for row in published_rows(protocol.name if protocol.sessions else protocol.dataset):
        last = [cell(row, "hmean", sessions[-1]), cell(row, "new_acc", sessions[-1]), cell(row, "pd", "first-last")]
        episodes = [cell(row, f"fsl_{kind}", "fsl") for kind in NAMES.values()]
        values = [*(cell(row, "avg_acc", t) for t in sessions), *last, *episodes]
        if any(value != "–" for value in values):
            lines.append([row.title, row.source, *values])
    if not lines:
        return []
    remark = (
        "Other backbones, training and one fixed draw: not comparable with the rows above digit by digit. Session 0 is "
        "mostly the better of two classifiers, epochs are mostly selected on test data, few-shot columns use another "
        "class split."
    )
    text = [f"[{i}] {note}" for i, note in enumerate(notes, 1)]
    return ["## Published rows", remark, table(columns, lines, left=2), "\n".join(f"- {line}" for line in text)]


def _flat(row: Row, episodes: Sequence[EpisodeRow]) -> dict[str, Any]:
    """One line of CSV."""
    method, backbone = row.record["method"], row.record["backbone"]
    line: dict[str, Any] = {
        "dataset": row.protocol,
        "backbone": row.backbone,
        "method": row.method,
        "settings": json.dumps(method["settings"], sort_keys=True),
        "status": "failed" if row.failed else "complete" if row.complete else "incomplete",
        "draws": len(row.draws),
        "pretraining": backbone["pretraining"],
        "overlap": backbone["overlap"]["kind"],
        "selection": backbone["selection"]["rule"],
        "exemplars": method["exemplars"],
        "privileges": " ".join(method["privileges"]),
    }
    for metric in HEADLINE:
        line |= summary_cells(metric, summarise(row.headline(metric)) if row.complete else None)
        line[f"{metric}_standard"] = row.standard(metric)
    few_shot = episodes_of(row, episodes)
    for shots, name in NAMES.items():
        of = summary_cells(name, few_shot.summary(shots) if few_shot else None)
        line |= {name: of[f"{name}_mean"], f"{name}_low": of[f"{name}_low"], f"{name}_high": of[f"{name}_high"]}
    for t in range(load_protocol(row.protocol).sessions + 1):
        line[f"avg_acc_session_{t}"] = row.by_session("avg_acc")[:, t].mean() if row.complete else None
    return line


def _nested(row: Row, episodes: Sequence[EpisodeRow]) -> dict[str, Any]:
    """The record without its single draws: what most readers want."""
    kept = {key: value for key, value in row.record.items() if key not in ("draws", "summary", "cost", "environment")}
    by_session: dict[str, Any] = {}
    summary = {metric: asdict(summarise(row.headline(metric))) for metric in HEADLINE if row.complete}
    kept["summary"] = {
        metric: {key: rounded(value) for key, value in values.items()} for metric, values in summary.items()
    }
    if row.complete:
        for metric in DEFINITIONS:
            means = row.by_session(metric).mean(axis=0)
            by_session[metric] = [None if np.isnan(value) else rounded(value) for value in means]
    few_shot = episodes_of(row, episodes)
    of_shots = {name: few_shot.summary(shots) for shots, name in NAMES.items()} if few_shot else {}
    kept["few_shot"] = {
        name: {key: rounded(value) for key, value in asdict(found).items()}
        for name, found in of_shots.items()
        if found is not None
    }
    return {**kept, "complete": row.complete, "n_draws": len(row.draws), "mean_by_session": by_session}


def _cost(row: Row) -> dict[str, Any]:
    cost = row.record["cost"]
    seconds = cost["seconds"]
    few_shot = isinstance(row, EpisodeRow)
    return {
        "dataset": row.protocol,
        "backbone": row.backbone,
        "method": row.label,
        "draws": "" if few_shot else len(row.draws) + (row.record["standard"] is not None),
        "episodes": row.plan["count"] * len(row.shots) if isinstance(row, EpisodeRow) else "",
        "fit_base_seconds": round(seconds["fit_base"], 3),
        "sessions_seconds": "" if few_shot else round(seconds["sessions"], 3),
        "episodes_seconds": round(seconds["episodes"], 3) if few_shot else "",
        "trained_parameters": "" if few_shot else cost["trained_parameters"],
        "peak_memory_mib": cost["peak_memory_mib"],
        "threads": row.record["environment"]["threads"],
        "machine": row.record["environment"]["machine"],
    }
