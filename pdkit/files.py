"""Writing files so that a reader never sees half of one, and reading those that users name."""

from __future__ import annotations

import errno
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any, BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read bytes; OSError for a pipe, a device or a folder, which may have no end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer would block
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("not a regular file")
    return os.fdopen(descriptor, "rb")


def write_text(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write `text` to `path` atomically (a temporary file in the same folder, then a rename).

    OSError where something else than a file stands there: a rename would put a file in the place of a device.
    """
    if path.exists() and not path.is_file():
        kind = errno.EISDIR if path.is_dir() else errno.EINVAL
        raise OSError(kind, os.strerror(kind) if path.is_dir() else "Not a regular file", str(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from None
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def to_json(value: Any) -> str:
    """Readable JSON with the keys in their given order and a final newline: same value, same bytes."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Write `value` as readable JSON, atomically."""
    write_text(path, to_json(value))
