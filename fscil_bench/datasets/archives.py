"""Official archives: downloaded or taken from disk, checked, and unpacked without trusting the names inside."""

import hashlib
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.files import write_atomically
from fscil_bench.progress import progress


def fetch(url: str, md5: str, folder: Path) -> Path:
    """Download `url` into `folder`; a whole earlier download is used again."""
    target = folder / url.rsplit("/", 1)[-1]
    if target.is_file() and _md5(target) == md5:
        return target

    def download(temporary: Path) -> None:
        request = urllib.request.Request(url, headers={"User-Agent": "fscil-bench"})
        with urllib.request.urlopen(request, timeout=60) as answer, temporary.open("wb") as file:
            total = int(answer.headers.get("Content-Length") or 0)
            with progress() as bar:
                task = bar.add_task(f"download {target.name}", total=total or None)
                while block := answer.read(1 << 20):
                    file.write(block)
                    bar.advance(task, len(block))

    try:
        write_atomically(target, download)
    except FscilError as error:
        if isinstance(error.__cause__, urllib.error.URLError | TimeoutError):
            raise FscilError(
                f"cannot download {url} ({error.__cause__}): get the archive by other means and pass --archive FILE"
            ) from error
        raise
    return target


def extract_tar(archive: Path, md5: str, member: str, target: Path) -> None:
    """Unpack the folder `member` of an official tar archive as `target`: whole, or not at all."""
    _require(archive)
    if _md5(archive) != md5:
        raise FscilError(f"{archive} is not the official archive (its md5 is not {md5}): download it again")
    extract_any(archive, member, target)


def extract_any(archive: Path, member: str, target: Path) -> None:
    """Unpack the folder `member`, wherever it is in a tar or zip archive, as `target`: whole, or not at all."""
    _require(archive)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
        try:
            if zipfile.is_zipfile(archive):
                with zipfile.ZipFile(archive) as zipped:
                    zipped.extractall(scratch)  # never leaves the folder: zipfile drops ".." and drive letters
            else:
                with tarfile.open(archive) as tar:
                    tar.extractall(scratch, filter="data")
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
            raise FscilError(f"cannot unpack {archive} into {target.parent} ({error}); nothing was changed") from error
        found = [folder for folder in sorted(Path(scratch).rglob(member)) if folder.is_dir()]
        if not found:
            raise FscilError(f"{archive} has no folder {member}/: is it the right archive?")
        shutil.move(found[0], target)


def _require(archive: Path) -> None:
    if not archive.is_file():
        raise UsageError(f"no archive at {archive}: pass --archive FILE with the archive")


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()
