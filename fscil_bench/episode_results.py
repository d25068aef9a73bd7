"""The record of few-shot episodes: one JSON a (method, settings, protocol, backbone), every episode's count inside."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fscil_bench.backbones.store import Backbone
from fscil_bench.environment import environment
from fscil_bench.episodes import Played
from fscil_bench.files import plain, write_json
from fscil_bench.protocols.draws import Split
from fscil_bench.records import pack_counts
from fscil_bench.registry import Configured
from fscil_bench.results import failure_path, inputs, peak_memory


@dataclass(frozen=True)
class EpisodeResult:
    """A method's few-shot episodes, counted."""

    configured: Configured
    backbone: Backbone
    split: Split
    played: Played


def episode_record(result: EpisodeResult) -> dict[str, Any]:
    """The record as JSON data; `right` packs one byte an episode, as base64, so that rows can be paired."""
    plan, method = result.played.plan, result.configured.method
    summaries = result.played.summaries()
    return {
        **inputs("fsl", result.configured, result.backbone, result.split),
        "compared_with": list(method.compared_with),
        "episodes": {"count": plan.count, "ways": plan.ways, "queries": plan.queries, "seed": plan.seed},
        "shots": {
            str(shots): {
                "summary": plain(asdict(summaries[shots])),
                "right": pack_counts(right, plan.ways * plan.queries),
            }
            for shots, right in result.played.right.items()
        },
        "cost": {"seconds": result.played.seconds, "peak_memory_mib": peak_memory()},
        "environment": environment(device="cpu"),
    }


def store_episodes(path: Path, result: EpisodeResult) -> None:
    """Put the record at `path` in place of whatever was there."""
    write_json(path, episode_record(result))
    failure_path(path).unlink(missing_ok=True)
