"""`fscil-bench ls`: what there is."""

import json

import click

from fscil_bench.cli.render import show_table
from fscil_bench.datasets import DATASETS
from fscil_bench.errors import UsageError
from fscil_bench.markdown import number
from fscil_bench.progress import note
from fscil_bench.protocols import load_protocol, protocol_names
from fscil_bench.registry import describe, method_names, require_method
from fscil_bench.words import MEMORY, memory_and_privileges


@click.group()
def ls() -> None:
    """List methods, datasets or backbones."""


@ls.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--json", "as_json", is_flag=True, help="One JSON document with all that the methods declare.")
@click.option("--markdown", "as_page", is_flag=True, help="The same as a page: docs/methods.md.")
def methods(names: tuple[str, ...], as_json: bool, as_page: bool) -> None:
    """Every method found, built-in or from another package.

    With NAMEs all that these declare: paper, where the equations come from, privileges, cost, deviations, and settings
    with the origin of their defaults.
    """
    for name in names:
        require_method(name)
    if as_json and as_page:
        raise UsageError("--json or --markdown: give one of them")
    if names or as_json or as_page:
        from fscil_bench.catalogue import method_data, method_sections, methods_page
        from fscil_bench.registry import loadable

        chosen = names or loadable()
        if as_json:
            click.echo(json.dumps([method_data(name) for name in chosen]))
        else:
            click.echo(methods_page(chosen) if as_page else method_sections(chosen), nl=False)
        return
    found = [describe(name) for name in method_names()]
    rows = []
    for d in found:
        memory = memory_and_privileges(d.facts.get("privileges", ()), d.facts.get("exemplars", 0))
        rows.append([d.name, d.summary, d.facts.get("paper", ""), memory, d.package])
    show_table("Methods", ["name", "what it does", "paper", MEMORY, "package"], rows, left=5)
    note("`fscil-bench ls methods NAME` shows a method's equations, deviations, cost and settings.")


@ls.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def datasets(as_json: bool) -> None:
    """Every dataset with its protocol."""
    found = [load_protocol(name) for name in protocol_names()]
    facts = [
        {
            "name": p.name,
            "title": p.title,
            "base": p.base,
            "sessions": p.sessions,
            "way": p.way,
            "shot": p.shot,
            "image_reader": p.dataset in DATASETS,
            "default_backbone": p.default_backbone,
            "sha256": p.sha256,
        }
        for p in found
    ]
    if as_json:
        click.echo(json.dumps(facts))
        return
    columns = ["name", "title", "default_backbone", "image_reader", "sha256"]
    rows = [[f["sha256"][:12] if c == "sha256" else str(f[c]) for c in columns] for f in facts]  # type: ignore[index]
    show_table("Datasets", columns, rows, left=5)


@ls.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def backbones(as_json: bool) -> None:
    """Every backbone, shipped or your own, with what it was trained on and what it scores in session 0."""
    from fscil_bench.backbones.store import WEIGHTS, list_backbones

    problems: list[str] = []
    found = list_backbones(problems)
    for problem in problems:
        note(f"Left out: {problem}")
    if as_json:
        click.echo(json.dumps([{**b.card, "shipped": b.shipped, "weights_here": b.has(WEIGHTS)} for b in found]))
        return
    rows = []
    for b in found:
        scores = b.card["session0"].get(b.card["dataset"], {})
        size = sum(path.stat().st_size for path in b.folder.iterdir() if path.is_file()) / 2**20
        selection = b.card["selection"]["rule"] + (" (leaky)" if b.card["selection"]["leaky"] else "")
        rows.append(
            [
                b.id,
                b.card["dataset"],
                b.card["network"],
                b.card["pretraining"],
                b.card["recipe"]["name"],
                selection,
                "shipped" if b.shipped else "own",
                "here" if b.has(WEIGHTS) else "not here",
                str(b.card["epochs"]),
                number(scores.get("prototypes")),
                number(scores.get("learned_head")),
                f"{size:.1f}",
                b.card["files"].get(WEIGHTS, "–")[:12],
            ]
        )
    columns = ["id", "dataset", "network", "pretraining", "recipe", "selection", "from", "weights", "epochs"]
    columns += ["session 0, prototypes", "session 0, learned head", "MiB", "weights sha256"]
    show_table("Backbones", columns, rows, left=8)
