"""Where the shipped folders (`slurm`, `accuracy`, `recipes`) are, in a checkout and in an installed wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """The folder `name`: inside the package when installed, beside it in a checkout."""
    installed = _PACKAGE / "_shipped" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


def expand(text: str) -> str:
    """`{pdkit}` becomes the package's own folder, where the tiny model of the local recipes lies."""
    return text.replace("{pdkit}", str(_PACKAGE))


def facts_folder(kind: str) -> Path:
    """The folder of fact files of one kind: `models`, `hardware` or `vllm`."""
    return _PACKAGE / "facts" / kind
