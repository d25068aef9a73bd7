"""How near the prototypes of several methods are to their oracles: a table, and every class as CSV."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fscil_bench.analysis.prototypes import Nearness
from fscil_bench.files import plain
from fscil_bench.markdown import csv_text, interval

COLUMNS = ("before", "after", "gain (95 %)", "closer, %")


@dataclass(frozen=True)
class PrototypesReport:
    """Plain and centred cosines of methods by label."""

    dataset: str
    backbone: str
    classes: Sequence[str]  # the new ones
    found: Mapping[str, Mapping[str, Nearness]]

    def columns(self) -> list[str]:
        kinds = next(iter(self.found.values()))
        return ["method", *(f"{kind}: {column}" for kind in kinds for column in COLUMNS)]

    def rows(self) -> list[list[str]]:
        lines = []
        for label, kinds in self.found.items():
            cells = [label]
            for nearness in kinds.values():
                of = nearness.summaries()
                gain = f"{of['gain'].mean:+.4f} ({interval(of['gain'], signed=True, digits=4)})"
                closer = f"{of['closer'].mean:.1f} ({interval(of['closer'])})"
                cells += [f"{of['before'].mean:.4f}", f"{of['after'].mean:.4f}", gain, closer]
            lines.append(cells)
        return lines

    def csv(self) -> str:
        """One line a method and class: means over draws."""
        lines = []
        for label, kinds in self.found.items():
            for i, name in enumerate(self.classes):
                line: dict[str, Any] = {"dataset": self.dataset, "backbone": self.backbone, "method": label}
                line |= {"class": name, "draws": len(next(iter(kinds.values())).before)}
                for kind, nearness in kinds.items():
                    before, after = nearness.before[:, i], nearness.after[:, i]
                    line |= {f"{kind}_before": float(before.mean()), f"{kind}_after": float(after.mean())}
                    line[f"{kind}_closer_percent"] = float(100 * (after > before).mean())
                lines.append(line)
        return csv_text(lines)

    def as_data(self) -> dict[str, Any]:
        methods = {
            label: {kind: {key: asdict(s) for key, s in near.summaries().items()} for kind, near in kinds.items()}
            for label, kinds in self.found.items()
        }
        return {"dataset": self.dataset, "backbone": self.backbone, "methods": plain(methods)}
