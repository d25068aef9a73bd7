"""What recipes there are, by name and dataset: recipes.toml as it stands, for whoever needs no more than that."""

import tomllib
from importlib import resources
from typing import Any


def recipe_data() -> dict[str, dict[str, dict[str, Any]]]:
    """The values of every recipe, by name and dataset."""
    return tomllib.loads((resources.files("fscil_bench.backbones") / "recipes.toml").read_text())


def recipe_names(dataset: str) -> list[str]:
    return [name for name, by_dataset in recipe_data().items() if dataset in by_dataset]


def recipe_listing() -> str:
    """All names; one that not every dataset has with those that have it."""
    known = recipe_data()
    datasets = {dataset for by_dataset in known.values() for dataset in by_dataset}
    return ", ".join(
        name if datasets == by_dataset.keys() else f"{name} ({', '.join(by_dataset)} only)"
        for name, by_dataset in known.items()
    )
