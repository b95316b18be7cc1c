"""The files a rack is started from: Slurm's configuration, our plugins, the key, the fake devices."""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import stat
from pathlib import Path

from pdkit.files import write_json, write_text
from pdkit.rack import process
from pdkit.rack.config import RackConfig, to_record

_HERE = Path(__file__).parent
_FOLDERS = ("etc", "gpu", "lib", "local", "log", "munge", "pid", "spool", "state", "sys", "cgroup")


def rendered(config: RackConfig, proctrack: str) -> dict[Path, str]:
    """Every configuration file and its text: same configuration, same bytes."""
    # Only a start needs it; the other commands answer faster without.
    import jinja2  # noqa: PLC0415

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Slurm's files are not HTML
    )
    values = {
        "rack": config,
        "proctrack": proctrack,
        "nodes": f"{config.name}-[01-{config.nodes:02d}]",
        "host": platform.node().partition(".")[0],
        "plugins": {name: _library(config, name) for name in ("pyxis", "segment")},
    }
    return {
        config.conf.parent / name.removesuffix(".j2"): environment.get_template(name).render(values)
        for name in sorted(environment.list_templates(extensions=["j2"]))
    }


def write(config: RackConfig, files: dict[Path, str]) -> None:
    """Make the folder ready to start from."""
    write_json(config.folder / "rack.json", to_record(config))
    for name in (*_FOLDERS, *(f"{kind}/{node}" for node in config.node_names for kind in ("disk", "spool"))):
        (config.folder / name).mkdir(parents=True, exist_ok=True)
    (config.folder / "munge").chmod(0o755)
    for path, text in files.items():
        write_text(path, text)
    for index in range(config.gpus_per_node):
        gpu = config.folder / "gpu" / f"nvidia{index}"
        if not gpu.exists():
            # Slurm numbers GPUs by their device files; this one has /dev/null behind it.
            os.mknod(gpu, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    key = config.folder / "munge" / "key"
    if not key.exists():
        write_text(key, secrets.token_hex(64), mode=0o400)
    for name in ("pyxis", "segment"):
        _compile(_HERE / "spank" / f"{name}.c", _library(config, name))


def _library(config: RackConfig, name: str) -> Path:
    # A plugin must be built for the very Slurm that loads it.
    seed = (_HERE / "spank" / f"{name}.c").read_bytes() + process.run(["slurmd", "-V"]).encode()
    return config.folder / "lib" / f"{name}-{hashlib.sha256(seed).hexdigest()[:12]}.so"


def _compile(source: Path, library: Path) -> None:
    if library.exists():
        return
    unfinished = library.with_suffix(".part")
    process.run(["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-o", unfinished, source], timeout_s=120)
    unfinished.replace(library)
