"""Fetch a public data file once, know it by its digest, and use it without network ever after."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import requests

from pdkit.errors import RecipeError
from pdkit.job.gsm8k import DataFile

_CONNECT_SECONDS, _READ_SECONDS = 10.0, 60.0


def fetch_data(spec: DataFile, cache_dir: Path, offline_file: Path | None = None) -> Path:
    """The path of a data file with the right digest: the one given, else the cached one, else freshly downloaded."""
    if offline_file is not None:
        _check(spec, offline_file)
        return offline_file
    cached = cache_dir / spec.sha256[:16] / f"{spec.name}.jsonl"
    if cached.exists():
        _check(spec, cached)
        return cached
    _download(spec, cached)
    return cached


def _check(spec: DataFile, file: Path) -> None:
    try:
        found = hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise RecipeError(f"cannot read the data file of {spec.name}: {error.strerror}", at=str(file)) from error
    if found != spec.sha256:
        raise RecipeError(
            f"this is not {spec.name}: sha256 is {found}, expected {spec.sha256}",
            at=str(file),
            fix=f"remove it and fetch it again from {spec.url}.",
        )


def _download(spec: DataFile, target: Path) -> None:
    offline = f"download it on a machine with network and name it, --set gate.data=FILE: {spec.url}"
    try:
        response = requests.get(spec.url, timeout=(_CONNECT_SECONDS, _READ_SECONDS))
        response.raise_for_status()
    except requests.RequestException as error:
        raise RecipeError(f"cannot download {spec.name}: {error}", at=spec.url, fix=offline) from error
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        fresh = Path(folder) / target.name
        fresh.write_bytes(response.content)
        _check(spec, fresh)
        fresh.replace(target)
