"""Files that are whole or absent: atomic writes, checksums, locks."""

import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fscil_bench.errors import FscilError, UsageError


def canonical_json(value: object) -> bytes:
    """One byte string a value: sorted keys, no blanks. What checksums of JSON are taken over."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_json(value: object) -> str:
    return sha256_bytes(canonical_json(value))


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place in one step; on failure leave no trace."""
    write_together({path: write})


def write_together(writers: Mapping[Path, Callable[[Path], object]]) -> None:
    """Write files that belong together: all are written beside their places before the first is put in place."""
    written: dict[Path, Path] = {}
    try:
        for path, write in writers.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
            os.close(handle)
            temporary = written[path] = Path(name)
            write(temporary)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.chmod(0o666 & ~_umask())
        for path, temporary in written.items():
            temporary.replace(path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FscilError(
            f"cannot write {', '.join(map(str, writers))}: {reason}; nothing was changed there. Free some space or "
            "choose another place"
        ) from error
    finally:
        for temporary in written.values():
            temporary.unlink(missing_ok=True)


def write_folder(folder: Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` fill a temporary folder beside `folder`, then rename it in one step; on failure leave no trace."""
    if folder.exists():
        raise UsageError(f"{folder} is there already: name a new folder")
    temporary = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
        temporary.chmod(0o777 & ~_umask())
        fill(temporary)
        temporary.rename(folder)
    except OSError as error:
        raise FscilError(
            f"cannot write {folder}: {error.strerror or error}; nothing was changed there. Free some space or choose "
            "another place"
        ) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def write_bytes(path: Path, data: bytes) -> None:
    write_atomically(path, lambda temporary: temporary.write_bytes(data))


def write_json(path: Path, value: object) -> None:
    write_bytes(path, json_bytes(value))


def json_bytes(value: object) -> bytes:
    """JSON for people and diffs: indented, but a list of plain values stays on one line."""
    return (_layout(value, "\n") + "\n").encode()


def _layout(value: object, newline: str) -> str:
    inner = newline + " "
    if isinstance(value, Mapping) and value:
        items = [f"{json.dumps(str(key), ensure_ascii=False)}: {_layout(item, inner)}" for key, item in value.items()]
        return "{" + inner + ("," + inner).join(items) + newline + "}"
    if isinstance(value, list | tuple) and any(isinstance(item, list | tuple | Mapping) for item in value):
        return "[" + inner + ("," + inner).join(_layout(item, inner) for item in value) + newline + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """JSON data: arrays as lists, NaN as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return value


def read_json(path: Path, what: str) -> Any:
    """The JSON document at `path`; `what` names it in the error if it is missing or damaged."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise UsageError(f"no {what} at {path}") from error
    except (ValueError, OSError) as error:
        raise FscilError(f"{what} {path} is damaged ({error}): restore it or make it anew") from error


def require_writable(folder: Path, option: str) -> None:
    """Fail before any work is done, not after it, if results could not be stored in `folder`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"cannot write to {folder}: {error.strerror or error}. Choose another place with {option}"
        ) from error


@contextmanager
def exclusive(path: Path, doing: str) -> Iterator[None]:
    """Hold the lock file `path`; if another process holds it, say so at once instead of waiting."""
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise FscilError(
            f"another process is {doing} ({path.parent}): wait until it ends, or write to another place"
        ) from error
    except OSError as error:
        raise FscilError(f"cannot write {path}: {error.strerror or error}. Choose another place") from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
