"""What is known of the data that weights were pretrained on: which new classes of a benchmark it has seen."""

from typing import Any

NONE, UNKNOWN = "none", "unknown"

_OVERLAP: dict[tuple[str, str], dict[str, Any]] = {
    ("imagenet1k", "cub200"): {
        "kind": "images",
        "new_classes": ["101.White_Pelican"],
        "note": "ImageNet-1k has about 60 bird classes, among them pelicans, and several CUB test images are in it",
    },
    ("imagenet1k", "miniimagenet"): {
        "kind": "images",
        "new_classes": "all",
        "note": "miniImageNet is a part of ImageNet-1k, test images included",
    },
}
KNOWN = sorted({name for name, _ in _OVERLAP})


def overlap(pretraining: str, dataset: str) -> dict[str, Any]:
    """{"kind": none | classes | images | unknown, "new_classes": [...]}, with a note where one is due."""
    if pretraining == NONE:
        return {"kind": "none", "new_classes": []}
    return _OVERLAP.get((pretraining, dataset), {"kind": "unknown", "new_classes": []})
