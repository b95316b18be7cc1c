"""`pdkit.zip`: the very code that runs inside the job. Pure Python, so an x86 login node can serve aarch64 nodes."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pdkit
from pdkit.paths import shipped

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Zip's oldest date: same files, same bytes."""
_PARTS = (
    "__init__.py",
    "errors.py",
    "files.py",
    "paths.py",
    "recipe",
    "facts",
    "plan",
    "render/text.py",
    "results",
    "job",
)
"""What the driver imports; the rest of pdkit stays on the login node."""


def bundle() -> bytes:
    """The bytes of `pdkit.zip`; the same sources give the same bytes."""
    package = Path(pdkit.__file__).resolve().parent
    files = {f"pdkit/{path.relative_to(package)}": path for part in _PARTS for path in _sources(package / part)}
    files["pdkit/render/__init__.py"] = package / "render" / "__init__.py"
    accuracy = shipped("accuracy")
    files |= {f"pdkit/_shipped/accuracy/{path.relative_to(accuracy)}": path for path in _sources(accuracy)}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, path in sorted(files.items()):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, path.read_bytes())
    return stream.getvalue()


def _sources(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(one for one in path.rglob("*") if one.is_file() and "__pycache__" not in one.parts)
