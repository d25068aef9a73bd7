"""What is known of the data that weights were pretrained on: which new classes of a benchmark it has seen."""

from collections.abc import Mapping
from typing import Any

from fscil_bench.protocols import load_protocol

NONE, UNKNOWN = "none", "unknown"
ALL = "all"

_OVERLAP: dict[tuple[str, str], dict[str, Any]] = {
    ("imagenet1k", "cub200"): {
        "kind": "images",
        "new_classes": ["101.White_Pelican"],
        "note": "ImageNet-1k has about 60 bird classes, among them pelicans, and several CUB test images are in it",
    },
    ("imagenet1k", "miniimagenet"): {
        "kind": "images",
        "new_classes": ALL,
        "note": "miniImageNet is a part of ImageNet-1k, test images included",
    },
}
KNOWN = sorted({name for name, _ in _OVERLAP})


def overlap(pretraining: str, dataset: str) -> dict[str, Any]:
    """{"kind": none | classes | images | unknown, "new_classes": [...]}, with a note where one is due."""
    if pretraining == NONE:
        return {"kind": "none", "new_classes": []}
    found = _OVERLAP.get((pretraining, dataset), {"kind": "unknown", "new_classes": []})
    if found["new_classes"] is not ALL:
        return found
    protocol = load_protocol(dataset)
    return {**found, "new_classes": [protocol.classes[number] for number in protocol.new_classes]}


def pretraining_note(card: Mapping[str, Any]) -> str | None:
    """What a reader of numbers must know of a backbone's weights; nothing if they were trained from scratch."""
    name, known = card["pretraining"], card["pretraining_overlap"]
    if name == NONE and known["kind"] == "none":
        return None
    why = f" ({known['note']})" if known.get("note") else ""
    return f"Pretraining of the backbone: {name}; overlap with new classes or test images: {known['kind']}{why}"
