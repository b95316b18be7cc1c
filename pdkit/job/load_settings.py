"""What the sweep needs to know; the driver fills it from the plan."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]


class LoadSettings(BaseModel):
    """The load of a sweep and where it goes."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    tool: Literal["vllm-bench", "aiperf"]
    """Load tool."""
    command: tuple[str, ...] = ()
    """How the tool is called, up to its own options; found on PATH when left out."""
    tool_version: str
    """Version of the tool as installed; aiperf's artifact overrides it, `vllm bench serve` does not tell its own."""
    env: dict[str, str] = {}
    """Environment variables of the tool beside those of this process."""
    url: str
    """Base URL of the router."""
    endpoint: Literal["chat", "completions"] = "chat"
    """API that the load uses."""
    model: str
    """Model name that the router knows."""
    tokenizer: str
    """Folder or name of the tokenizer that makes the prompts."""
    concurrency: Annotated[tuple[Positive, ...], Field(min_length=1)]
    """Requests in flight, one point each, measured in this order."""
    isl: Positive
    """Prompt tokens, before the chat template."""
    osl: Positive
    """Generated tokens."""
    shared_prefix: NotNegative = 0
    """Tokens of `isl` that are the same in every prompt."""
    template_tokens: NotNegative = 0
    """Most tokens that the chat template adds to a prompt."""
    prompts_per_concurrency: Positive = 8
    """Requests of a point = this x concurrency."""
    warmup_per_concurrency: NotNegative = 1
    """Requests before a point = this x concurrency: 1 is one full wave."""
    random_range_ratio: float = 0.0
    """As the load tool takes it; what is not fixed there is found in the lengths, and voids the point."""
    repeats: Positive = 1
    """How often each point is measured."""
    seed: NotNegative = 1
    """Base of the seeds; each point and repeat has its own."""
    gpus: Positive
    """GPUs that the deployment holds, idle ones on its nodes included."""
    gpus_by_role: Annotated[dict[str, Positive], Field(min_length=1)]
    """GPUs that each role uses."""
    mtp: NotNegative = 0
    """Speculative tokens on decode; 0 is off."""
    prefix_caching: bool = False
    """Whether an engine caches prefixes: then warm-up prompts must differ from measured ones."""
    metrics_urls: tuple[str, ...] = ()
    """Prometheus pages of the decoding engines, for MTP acceptance behind a router."""
    rehearsal: bool = False
    """Played engines answer: a point of theirs is marked so."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 3600.0
    """Longest run of the tool for one point."""

    @model_validator(mode="after")
    def _roles_fit(self) -> LoadSettings:
        if sum(self.gpus_by_role.values()) > self.gpus:
            raise ValueError("gpus_by_role adds up to more than gpus")
        if len(set(self.concurrency)) != len(self.concurrency):
            raise ValueError("concurrency lists a value twice")
        return self

    def requests(self, concurrency: int) -> int:
        """Requests of one point."""
        return self.prompts_per_concurrency * concurrency

    def seed_of(self, concurrency: int, repeat: int) -> int:
        """A seed that no other point or repeat of this sweep has (up to 50 repeats)."""
        return self.seed * 1_000_003 + concurrency * 100 + repeat
