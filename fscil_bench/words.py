"""What the words in tables mean: the columns, and what a method uses beyond plain FSCIL."""

from collections.abc import Iterable, Sequence

from fscil_bench.metrics import DEFINITIONS, HEADLINE, PD_DEFINITION

MEAN_ACC_DEFINITION = "mean AvgAcc: the mean of AvgAcc over all sessions, session 0 among them"
ALL_DEFINITIONS = {**DEFINITIONS, "pd": PD_DEFINITION, "mean_acc": MEAN_ACC_DEFINITION}
HEADLINE_DEFINITIONS = {metric: text for metric, text in ALL_DEFINITIONS.items() if metric in HEADLINE}

RANDOM_BASE = (
    "A method that draws random numbers draws those of its base session once, for all draws and episodes: what others "
    "would change is in no interval"
)

MEMORY = "memory and privileges"  # the column
REFERENCE = "all_data"
PRIVILEGES = {
    "exemplars": "exemplars (N): keeps N images of each new class, their features or what tells as much, for the "
    "sessions that follow",
    REFERENCE: "all_data: learns each new class from all its training images where others get a few; such a row is a "
    "reference, not a competitor, and stands after the others",
    "total_classes": "total_classes: knows from the start how many classes will come",
}


def memory_and_privileges(privileges: Sequence[str], exemplars: int) -> str:
    """What a method uses beyond plain FSCIL: `none`, `all_data`, `exemplars (5), total_classes`."""
    return ", ".join(f"{name} ({exemplars})" if name == "exemplars" else name for name in privileges) or "none"


def privilege_notes(privileges: Iterable[str]) -> list[str]:
    """What those of them mean that the harness knows; each once."""
    asked = set(privileges)
    return [meaning for name, meaning in PRIVILEGES.items() if name in asked]
