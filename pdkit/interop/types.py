"""What an srt-slurm recipe says, in neutral words, and what becomes of it in pdkit."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, Literal

from pdkit.errors import Finding
from pdkit.interop.shorten import shortened
from pdkit.interop.text import recipe_text
from pdkit.recipe.load import Loaded
from pdkit.recipe.schema import Recipe, Role
from pdkit.recipe.source import Source
from pdkit.recipe.topology import Topology
from pdkit.recipe.yaml_marks import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something of the original that is not, or not quite, in the pdkit recipe."""

    kind: Literal["dropped", "changed", "added"]
    """`dropped`: no counterpart; `changed`: said differently in effect; `added`: the original leaves it out."""
    what: str
    """The setting as the original spells it, dotted."""
    why: str
    at: str
    """`file:line:col` in the original."""
    value: str = ""
    """What the original says there; empty where it says nothing."""

    def __str__(self) -> str:
        return f"{self.at}: {self.kind} {self.what}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SrtRole:
    """The workers of one role, as srt-slurm launches them."""

    role: Role
    path: Path
    """Where its vLLM flags stand in the original."""
    nodes: int
    """Nodes that are reserved for this role; 0 when decode shares those of prefill."""
    workers: int
    gpus: int
    """GPUs of one worker."""
    topology: Topology
    flags: dict[str, Any]
    """vLLM flags in vLLM's full spelling, in the original's order, with the values of the file."""
    flag_keys: dict[str, str]
    """Each of `flags` as the file spells it: `origin.at((*path, flag_keys[name]))` is its place."""
    env: dict[str, str]
    kv_transfer: dict[str, Any] | None
    """The JSON of `--kv-transfer-config`, be it given as a flag or as `connector:`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SrtBenchmark:
    """The load, with srt-slurm's defaults filled in."""

    type: str
    """`sa-bench`, `gsm8k`, `custom`, ..."""
    isl: int | None
    osl: int | None
    concurrency: tuple[int, ...]
    range_ratio: float
    """Lengths are drawn evenly from [ratio x L, L]."""
    prompts_per_concurrency: int
    warmup_per_concurrency: int
    endpoint: Literal["chat", "completions"]
    chat_template: bool
    repeats: int
    request_rate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SrtRecipe:
    """One expanded srt-slurm recipe of either schema."""

    schema: Literal[1, 2]
    variant: str
    """Which `override_*`, `zip_override_*` or `sweep` member of the file this is; empty for a plain file."""
    name: str
    model_path: str
    """What `--model` gets: the repository of an `hf:` path, else the path or alias as written."""
    from_hub: bool
    served_name: str
    revision: str | None
    repo: str | None
    """`identity.model.repo`: which checkpoint an alias stands for."""
    precision: str | None
    container: str | None
    dynamo: str | None
    """A version of Dynamo; None when a commit or a wheel without version is named."""
    vllm: str | None
    """The version that `identity` or the container's tag tells; None when neither does."""
    gpu_type: str
    gpus_per_node: int
    roles: dict[Role, SrtRole]
    benchmark: SrtBenchmark
    frontend: dict[str, Any]
    slurm: dict[str, Any]
    directives: dict[str, Any]
    environment: dict[str, str]
    mounts: dict[str, str]
    ready_timeout_seconds: int | None
    origin: Source
    """The expanded original with the place of every part."""

    @property
    def nodes(self) -> int:
        """Nodes that srt-slurm asks Slurm for, without dedicated ones for services."""
        return sum(role.nodes for role in self.roles.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """One variant of an srt-slurm file as a pdkit recipe."""

    name: str
    recipe: Recipe
    source: Source
    """The recipe's data; its places are those of the original file."""
    srt: SrtRecipe
    notes: tuple[Note, ...] = ()
    findings: tuple[Finding, ...] = field(default=())
    """Faults of the original that the recipe cannot show, such as workers that do not fit their nodes."""

    @property
    def text(self) -> str:
        """The recipe as YAML, with nothing in it that pdkit would decide the same by itself."""
        return recipe_text(shortened(self.source.data), self._heading())

    def _heading(self) -> list[str]:
        """The comment at the head: where the recipe comes from and what it does not carry over."""
        file = FilePath(self.source.file).name
        variant = f" ({self.srt.variant})" if self.srt.variant else ""
        lines = [f"Imported from {file}{variant} by pdkit import."]
        lines += [f"{note.kind}: {note.what}: {note.why}" for note in self.notes if note.kind != "added"]
        return list(dict.fromkeys(lines))

    @property
    def loaded(self) -> Loaded:
        """As `make_plan` takes it."""
        return Loaded(self.recipe, self.source)
