"""A whole copy of a backbone, for another place or another version of its bank."""

import shutil
from pathlib import Path

from fscil_bench.backbones.store import WEIGHTS, Backbone
from fscil_bench.errors import FscilError
from fscil_bench.files import sha256_file, write_folder


def export(backbone: Backbone, folder: Path) -> list[str]:
    """Copy card, banks and, if they are here, weights to a new `folder`; return the names of what is not here.

    Every file is checked against the card before and after. A bank that is not here is an error: a backbone is shipped
    without weights, never without banks.
    """
    missing = [name for name in backbone.card["files"] if name == WEIGHTS and not backbone.has(name)]

    def fill(temporary: Path) -> None:
        shutil.copyfile(backbone.folder / "card.json", temporary / "card.json")
        for name in backbone.card["files"].keys() - set(missing):
            shutil.copyfile(backbone.file(name), temporary / name)
            if sha256_file(temporary / name) != backbone.checksum(name):
                raise FscilError(f"{name} came out damaged in {folder.parent}: nothing was left there; try once more")

    write_folder(folder, fill)
    return missing
