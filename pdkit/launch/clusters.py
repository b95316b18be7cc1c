"""`~/.config/pdkit/clusters.yaml`: what is so on a cluster whatever the recipe; the recipe wins."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pdkit.errors import Finding, RecipeError, UsageError
from pdkit.recipe.load import Loaded, nearest
from pdkit.recipe.schema import ClusterSpec, Recipe, Spec, deep_merge
from pdkit.recipe.source import Source, read_file
from pdkit.recipe.yaml_marks import Document, parse


class ClusterDefaults(Spec):
    """What is so on one cluster."""

    cluster: ClusterSpec = ClusterSpec()
    """Values for the recipe's `cluster:` section; those of the recipe win, mounts and directives one by one."""
    images: dict[str, str] = {}  # noqa: RUF012  (pydantic copies it)
    """Image as recipes name it: where it lies on this cluster, such as a squashfs file for Pyxis."""
    infra_image: str | None = None
    """Image with `etcd` and `nats-server` for recipes that name none."""
    hf_token_file: str | None = None
    """File of mode 600 with a Hugging Face token; jobs get it as HF_TOKEN, unless the environment has one."""


class ClustersFile(Spec):
    """The whole file."""

    default: str | None = None
    """Cluster that is meant when the command line names none."""
    clusters: dict[str, ClusterDefaults]
    """The clusters by name."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster, and where its parts were written."""

    name: str
    defaults: ClusterDefaults
    document: Document

    def under(self, loaded: Loaded) -> Loaded:
        """The recipe with this cluster's values below it, each part still knowing its place."""
        given = self.defaults.cluster.model_dump(exclude_unset=True)
        data = {**loaded.source.data, "cluster": deep_merge(given, loaded.source.data.get("cluster") or {})}
        source = Source(loaded.source.file, data, dict(loaded.source.keys), dict(loaded.source.values))
        here = ("clusters", self.name, "cluster")
        for table, marks in ((source.keys, self.document.keys), (source.values, self.document.values)):
            for path, mark in marks.items():
                if path[: len(here)] == here:
                    table.setdefault(path[2:], mark)
        self._images(data)
        return Loaded(Recipe.model_validate(data), source)

    def _images(self, data: dict[str, object]) -> None:
        for section, instead in (("engine", None), ("infra", self.defaults.infra_image)):
            part = data.get(section) or {}
            assert isinstance(part, dict)
            image = part.get("image") or instead
            if image is not None:
                data[section] = {**part, "image": self.defaults.images.get(image, image)}

    def environment(self) -> dict[str, str]:
        """Variables for jobs on this cluster: the token, unless this process has one already.

        Raises UsageError when the token's file is not there, or not the user's alone.
        """
        named = self.defaults.hf_token_file
        if named is None or os.environ.get("HF_TOKEN"):
            return {}
        file = Path(named).expanduser()
        at = str(self.document.values.get(("clusters", self.name, "hf_token_file"), file))
        if not file.is_file():
            raise UsageError(f"`hf_token_file`: no such file: {file}", at=at)
        if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UsageError(f"`hf_token_file`: others may read {file}", at=at, fix=f"chmod 600 {file}")
        token = file.read_text(encoding="utf-8").strip()
        if not token or len(token.split()) != 1:
            raise UsageError(f"`hf_token_file`: {file} should hold one token and nothing else", at=at)
        return {"HF_TOKEN": token}


def clusters_file() -> Path:
    """`$XDG_CONFIG_HOME/pdkit/clusters.yaml`, else `~/.config/pdkit/clusters.yaml`."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "pdkit" / "clusters.yaml"


def choose_cluster(name: str | None) -> Cluster | None:
    """The cluster of that name, or the file's default; None when neither is given.

    Raises RecipeError with every fault of the file and its place, UsageError when there is no such cluster.
    """
    path = clusters_file()
    if not path.is_file():
        if name is None:
            return None
        raise UsageError(f"no cluster `{name}`: there is no {path}", fix="see docs/clusters.md for what it holds")
    document = parse(read_file(path), str(path))
    content = _validate(document, str(path))
    wanted = name or content.default
    if wanted is None:
        return None
    if wanted not in content.clusters:
        at = str(path) if name else str(document.values[("default",)])
        raise UsageError(f"no cluster `{wanted}` in this file", at=at, fix=nearest(wanted, content.clusters))
    return Cluster(wanted, content.clusters[wanted], document)


def _validate(document: Document, file: str) -> ClustersFile:
    if not isinstance(document.data, dict):
        raise RecipeError.of(
            Finding("PD104", "error", "this file maps keys to values", f"{file}:1:1", "start with `clusters:`")
        )
    try:
        return ClustersFile.model_validate(document.data)
    except ValidationError as error:
        raise RecipeError.of(*dict.fromkeys(_findings(error.errors(), document, file))) from None


def _findings(details: list[ErrorDetails], document: Document, file: str) -> Iterator[Finding]:
    """Pydantic's complaints with the places of the file."""
    for detail in details:
        loc = tuple(detail["loc"])
        kind, dotted = detail["type"], ".".join(map(str, loc))
        # A union names its members behind the path; what was written is the longest known beginning.
        ends = range(len(loc), 0, -1)
        tables = (document.keys, document.values) if kind == "extra_forbidden" else (document.values, document.keys)
        at = next((str(table[loc[:end]]) for end in ends for table in tables if loc[:end] in table), f"{file}:1:1")
        if kind == "extra_forbidden":
            message = f"`{dotted}` is not a setting of this file"
            yield Finding("PD103", "error", message, at, nearest(str(loc[-1]), _names(loc)))
        elif kind == "missing":
            yield Finding("PD109", "error", f"`{dotted}` is missing", at, f"add `{loc[-1]}:`")
        else:
            known = ".".join(map(str, next((loc[:end] for end in ends if loc[:end] in document.values), loc)))
            yield Finding("PD104", "error", f"`{known}`: {detail['msg'][:1].lower()}{detail['msg'][1:]}", at)


def _names(loc: tuple[str | int, ...]) -> list[str]:
    """The names that are allowed where an unknown one stands."""
    models: dict[int, type[Spec]] = {1: ClustersFile, 3: ClusterDefaults}
    return list(models.get(len(loc), ClusterSpec).model_fields)
