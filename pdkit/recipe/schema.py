"""What a recipe may say. Each field's docstring is the reference, the editor's hover text and `docs/recipe.md`.

A value that is left out is decided by the plan, with a reason; a value that is given wins and is marked so.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StringConstraints,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from pdkit.recipe.topology import Topology, parse_topology

Role = Literal["prefill", "decode", "agg"]
ROLES: tuple[Role, ...] = ("prefill", "decode", "agg")
Scalar = bool | int | float | str
Positive = Annotated[int, Field(ge=1, le=10_000_000, strict=True)]
Requests = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
NotNegative = Annotated[int, Field(ge=0, le=10_000_000, strict=True)]
Share = Annotated[float, Field(ge=0.0, le=1.0, strict=True)]
Gib = Annotated[float, Field(gt=0.0, le=1_000_000.0, strict=True)]
Word = Annotated[str, Field(pattern=r"^[^\s]+$")]
Line = Annotated[str, Field(pattern=r"^[^\r\n]*$")]
ModelPath = Annotated[str, Field(min_length=1)]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
OptionName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]*$")]


class Spec(BaseModel):
    """Base of all recipe parts: frozen, and an unknown key is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, populate_by_name=True, hide_input_in_errors=True
    )


class _TopologyText:
    """Lets pydantic read a topology from text and write it in its canonical form."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._read,
            serialization=core_schema.plain_serializer_function_ser_schema(str),
            json_schema_input_schema=core_schema.str_schema(pattern=r"^(T|D)E?P[0-9]+"),
        )

    @staticmethod
    def _read(value: Any) -> Topology:
        if isinstance(value, Topology):
            return value
        if not isinstance(value, str):
            raise PydanticCustomError("topology", "a topology is text such as TP4DP2+EP or TEP8")
        try:
            return parse_topology(value)
        except ValueError as error:
            raise PydanticCustomError("topology", "{reason}", {"reason": str(error)}) from None


TopologyField = Annotated[Topology, _TopologyText]


def _as_facts(value: Any) -> Any:
    return {"facts": value} if isinstance(value, str) else value


class ModelSpec(Spec):
    """The model that is served."""

    facts: str
    """A model that pdkit knows, such as `qwen3.8-2.4t`, or path or URL of a Hugging Face `config.json`."""
    path: ModelPath
    """The string given to `--model` on every role; NIXL compares it literally. `{pdkit}` is pdkit's own folder."""
    revision: str | None = None
    """Revision of the checkpoint, given to `--revision` when set."""
    served_name: str | None = None
    """Name that clients use; the last part of `path` when left out."""
    weights_gib: Gib | None = None
    """Size of the whole checkpoint in GiB, where the facts cannot give it."""


class EngineSpec(Spec):
    """Which software runs."""

    vllm: str
    """vLLM version; its flags and defaults are checked against the facts of this version."""
    dynamo: str
    """NVIDIA Dynamo version."""
    image: str | None = None
    """Container image for Pyxis, the same on every role; none on a machine where the engines are installed."""
    facts: str | None = None
    """What the image's own parsers accept, a file of `pdkit doctor --image-probe`; flags are checked against it."""


class HardwareSpec(Spec):
    """Where it runs. A plain string is the name of the facts."""

    facts: str
    """Name of known hardware: `gb300-nvl72`, `gb200-nvl72`, `generic`, `cpu`."""
    nodes: Positive | None = None
    """Nodes of one NVLink domain, when it differs from the facts."""
    gpus_per_node: Positive | None = None
    """GPUs (or CPU engine slots) per node, when it differs from the facts."""
    gpu_memory_gib: Gib | None = None
    """Memory of one GPU in GiB as vLLM sees it, when it differs from the facts."""


class KvTransfer(Spec):
    """How KV blocks travel from prefill to decode (`--kv-transfer-config`)."""

    connector: str = "NixlConnector"
    """vLLM's connector class."""
    kv_role: Literal["kv_both", "by_role"] = "kv_both"
    """`kv_both` as the published recipes; `by_role` gives kv_producer to prefill and kv_consumer to decode."""
    load_failure_policy: Literal["fail", "recompute"] = "fail"
    """What decode does when a block does not arrive. `recompute` hides faults and is wrong on hybrid models."""
    buffer_device: Literal["cuda", "cpu"] | None = None
    """Device of NIXL's buffers; vLLM's default when left out."""
    extra: dict[str, Any] = {}
    """`kv_connector_extra_config`, passed through."""


class Settings(Spec):
    """Settings of an engine. Under `common:` they hold for every role; a role's own value wins."""

    mtp: Annotated[int, Field(ge=0, le=64, strict=True)] | None = None
    """Speculative tokens of the model's own MTP head; 0 is off. Prefill follows decode unless it says otherwise."""
    speculative: dict[str, Any] = {}
    """More of `--speculative-config`, such as `method: eagle3` and its `model`; `mtp` is then its number of tokens.
    Prefill follows decode, as with `mtp`."""
    block_size: Literal["auto", "natural"] | Positive | None = None
    """Tokens per KV block. `auto` agrees on one size and pins it on both roles; `natural` leaves vLLM to itself."""
    dtype: str | None = None
    """Model dtype; `auto` takes the checkpoint's."""
    kv_cache_dtype: str | None = None
    """Dtype of the attention KV cache, for example `fp8`; `auto` takes the model's."""
    mamba_cache_dtype: str | None = None
    """Dtype of the GDN convolution state; `auto` takes the model's."""
    mamba_ssm_cache_dtype: str | None = None
    """Dtype of the GDN recurrent state; `auto` takes the model's own wish."""
    conv_state_layout: Literal["DS", "SD"] | None = None
    """VLLM_SSM_CONV_STATE_LAYOUT; NIXL needs DS on hybrid models, and that is the default there."""
    prefix_caching: bool | None = None
    """Automatic prefix caching; off by default, as random prompts never hit and hybrids cache whole blocks only."""
    enforce_eager: bool | None = None
    """No CUDA graphs at all."""
    gpu_memory_utilization: Annotated[float, Field(gt=0.0, le=1.0, strict=True)] | None = None
    """Share of the GPU memory that vLLM may use; vLLM's default when left out."""
    kv_cache_memory_gib: Gib | None = None
    """Fixed size of the KV cache in GiB per GPU, instead of what profiling leaves (`--kv-cache-memory-bytes`)."""
    max_model_len: Positive | None = None
    """Longest request in tokens, prompt and answer together."""
    max_num_seqs: Requests | None = None
    """Requests that one rank runs at once."""
    max_num_batched_tokens: Positive | None = None
    """Tokens that one rank computes in one step."""
    max_cudagraph_capture_size: Positive | None = None
    """Largest batch in tokens for which a CUDA graph is captured."""
    cudagraph_mode: Literal["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"] | None = None
    """vLLM's CUDA-graph mode."""
    kv_transfer: KvTransfer | Literal["none"] | None = None
    """KV connector; `none` switches it off. Prefill and decode have NixlConnector by default, agg has none."""
    model_path: ModelPath | None = None
    """Another `--model` string for one role. NIXL then refuses every request; for tests of the checks."""
    args: dict[str, Scalar | list[Any] | dict[str, Any]] = {}
    """More vLLM flags, without dashes: `async-scheduling: true` gives the bare flag, `false` its `--no-` form."""
    env: dict[VariableName, Scalar] = {}
    """More environment variables of the engine."""


class RoleSpec(Settings):
    """The endpoints of one role."""

    topology: TopologyField
    """How one endpoint splits the model: `TP4DP2+EP`, `TP2DEP4`, `TEP8`, `DEP8`, `TP1PP6+EP`, `TP2PP2`, `TP8`."""
    endpoints: Annotated[int, Field(ge=1, le=1024, strict=True)] = 1
    """Number of endpoints of this role."""
    sized_for: Literal["prefill", "decode"] | None = None
    """Only for `agg`: which sizing rule fits the load; `decode` when left out."""


def _each_once(values: list[int]) -> list[int]:
    twice = next((value for index, value in enumerate(values) if value in values[:index]), None)
    if twice is not None:
        raise PydanticCustomError("twice", "{value} stands there twice", {"value": twice})
    return values


class WorkloadSpec(Spec):
    """The load to prove and measure."""

    isl: Positive
    """Input sequence length in tokens, before the chat template."""
    osl: Positive
    """Output sequence length in tokens."""
    concurrency: Annotated[list[Requests], Field(min_length=1), AfterValidator(_each_once)]
    """Requests in flight over the whole deployment, one point each."""
    template_tokens: NotNegative = 64
    """Tokens that the chat template may add to a prompt."""
    shared_prefix: NotNegative = 0
    """Tokens of `isl` with which every prompt begins alike, for prefix caching; `vllm bench serve` makes them so."""

    @model_validator(mode="after")
    def _prefix_is_a_part(self) -> WorkloadSpec:
        if self.shared_prefix >= self.isl:
            raise PydanticCustomError("prefix", "shared_prefix must be less than isl")
        return self

    @property
    def request_tokens(self) -> int:
        """Tokens of the longest request: ISL + OSL + template."""
        return self.isl + self.osl + self.template_tokens


class GateSpec(Spec):
    """The accuracy gate that must pass before any point is measured."""

    protocol: Literal["completions-5shot", "chat-cot"] = "chat-cot"
    """`completions-5shot` as lm-eval's gsm8k; `chat-cot` for models that think."""
    floor: Share = 0.94
    """Least share of right answers."""
    scored_by: Literal["strict", "flexible"] = "flexible"
    """Which extraction counts."""
    questions: Positive | None = None
    """Ask only the first so many questions; all when left out."""
    max_tokens: Positive = 2048
    """Longest answer in tokens."""
    concurrency: Positive | None = None
    """Requests in flight; the largest concurrency of the workload when left out."""
    max_truncated_share: Share = 0.02
    """More answers cut at `max_tokens` than this fail the gate."""
    max_empty_share: Share = 0.0
    """More empty answers than this fail the gate."""
    min_acceptance: Share = 0.2
    """With MTP: least share of drafted tokens that is accepted while the gate asks; 0 judges nothing."""
    min_kv_mb_s: Annotated[float, Field(ge=0.0, strict=True)] = 0.0
    """Least MB/s of KV that a decode rank receives during its transfers, by NIXL's own counters; 0 judges nothing."""
    data: str | None = None
    """GSM8K test file; the public one, fetched by its sha256, when left out. `{pdkit}` is pdkit's own folder."""
    shots: str | None = None
    """File of worked examples for `completions-5shot`."""
    twin: str | None = None
    """Stored answers of the aggregated twin for the paired test."""
    timeout_seconds: Positive = 600
    """Longest wait for one answer."""


class SweepSpec(Spec):
    """How points are measured."""

    tool: Literal["vllm-bench", "aiperf"] = "vllm-bench"
    """Load tool; both run in the engines' image."""
    endpoint: Literal["chat", "completions"] = "chat"
    """API of the load; chat lets MTP see real turns."""
    prompts_per_concurrency: Positive = 8
    """Requests of a point = this x concurrency."""
    warmup_per_concurrency: Positive = 1
    """Requests before a point = this x concurrency; one full wave by default."""
    repeats: Positive = 1
    """How often each point is measured."""
    random_range_ratio: Share | None = None
    """The load tool's own setting, for a recipe that comes from elsewhere; left out, lengths are fixed."""


class ServingSpec(Spec):
    """What the API gives beside plain text. Dynamo's workers parse; without a parser all stays text."""

    tool_parser: Word | None = None
    """Reads tool calls out of answers, for example `qwen3_coder` or `hermes` (`--dyn-tool-call-parser`)."""
    reasoning_parser: Word | None = None
    """Separates thinking from the answer, for example `qwen3` (`--dyn-reasoning-parser`)."""
    untrusted_input: bool = False
    """Prompts hold text of people or documents that are not trusted; settings that give them power are then errors."""


class InfraSpec(Spec):
    """The router and how workers find it."""

    discovery: Literal["etcd", "file"] = "etcd"
    """Where workers register: `etcd` is started with the deployment; `file` needs no server, but a worker that was held
    up for 10 s is forgotten for good."""
    event_plane: Literal["nats", "zmq"] | None = None
    """How events travel; `nats` is started with the deployment. Left out: `nats` beside etcd, `zmq` beside files."""
    image: str | None = None
    """Container image that holds `etcd` and `nats-server`; without one they are taken from the node's PATH."""
    frontends: Positive = 1
    """Dynamo frontends, on the first nodes."""
    frontend_args: dict[str, Scalar] = {}
    """More flags of Dynamo's frontend, without dashes, such as `router-mode: kv`."""
    http_port: Annotated[int, Field(ge=1024, le=65535, strict=True)] = 8000
    """Port of the frontend."""
    port_shift: Annotated[int, Field(ge=0, le=9000, strict=True)] = 0
    """Added to every port; `pdkit run` chooses one on a machine where ports are taken."""
    ready_timeout_seconds: Positive = 3600
    """Longest wait until every engine has loaded and proved itself."""

    @property
    def events(self) -> Literal["nats", "zmq"]:
        """The event plane that is used."""
        return self.event_plane or ("nats" if self.discovery == "etcd" else "zmq")


class ClusterSpec(Spec):
    """How the job is asked for. Values left out are not given to sbatch."""

    account: Word | None = None
    """Slurm account."""
    partition: Word | None = None
    """Slurm partition."""
    qos: Word | None = None
    """Slurm quality of service."""
    time_limit: Annotated[str, Field(pattern=r"^([0-9]{1,6}-)?[0-9]{1,2}(:[0-9]{2}){0,2}$|^[0-9]{1,6}$")] = "2:00:00"
    """Longest run, in Slurm's forms `minutes`, `hours:minutes:seconds`, `days-hours`."""
    segment: Literal["auto", "none"] | Positive = "auto"
    """`--segment`: nodes that must share one NVLink domain; `auto` asks for all of them on NVL72."""
    exclusive: bool = True
    """Ask for whole nodes."""
    gres: bool = True
    """Ask for the GPUs with `--gres=gpu:N`."""
    mounts: dict[str, str] = {}
    """Host folder: container folder, for the model and caches."""
    directives: dict[OptionName, bool | int | float | Line] = {}
    """More `#SBATCH` options, without dashes."""


class Ignore(Spec):
    """A finding that is known and accepted."""

    code: Annotated[str, Field(pattern=r"^PD\d{3}$")]
    """The rule's code."""
    reason: Annotated[str, StringConstraints(strip_whitespace=True, min_length=10)]
    """Why it does not matter here; shown in the plan and the report."""


class Recipe(Spec):
    """One deployment and its load, as a person writes it."""

    schema_version: Annotated[Literal[1], Field(alias="schema")]
    """Version of the recipe format: 1."""
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,79}$")]
    """Short name; names the Slurm job and the run folder."""
    description: str = ""
    """One or two sentences for the reader."""
    model: ModelSpec
    """The model that is served."""
    engine: EngineSpec
    """Which software runs."""
    hardware: Annotated[HardwareSpec, BeforeValidator(_as_facts)]
    """Where it runs."""
    common: Settings = Settings()
    """Settings of every role."""
    prefill: RoleSpec | None = None
    """Endpoints that compute prompts."""
    decode: RoleSpec | None = None
    """Endpoints that generate."""
    agg: RoleSpec | None = None
    """Endpoints that do both, instead of prefill and decode."""
    workload: WorkloadSpec
    """The load to prove and measure."""
    gate: GateSpec = GateSpec()
    """The accuracy gate."""
    sweep: SweepSpec = SweepSpec()
    """How points are measured."""
    serving: ServingSpec = ServingSpec()
    """Tool calls and thinking in the API."""
    infra: InfraSpec = InfraSpec()
    """Router and discovery."""
    cluster: ClusterSpec = ClusterSpec()
    """How the Slurm job is asked for."""
    ignore: list[Ignore] = []
    """Findings that are accepted, each with its reason."""

    @model_validator(mode="after")
    def _roles_fit_together(self) -> Recipe:
        pair = (self.prefill is not None, self.decode is not None)
        if self.agg is not None and any(pair):
            raise PydanticCustomError("roles", "give either `agg`, or `prefill` and `decode`, not both")
        if self.agg is None and not all(pair):
            raise PydanticCustomError("roles", "give `prefill` and `decode`, or `agg` alone")
        return self

    @model_validator(mode="after")
    def _tool_makes_the_load(self) -> Recipe:
        if self.workload.shared_prefix and self.sweep.tool != "vllm-bench":
            raise PydanticCustomError("prefix", "`workload.shared_prefix` needs `sweep.tool: vllm-bench`")
        return self

    def roles(self) -> dict[Role, RoleSpec]:
        """The roles that this recipe has, in the order in which they are placed."""
        found: dict[Role, RoleSpec | None] = {"prefill": self.prefill, "decode": self.decode, "agg": self.agg}
        return {role: spec for role, spec in found.items() if spec is not None}

    def settings(self, role: Role) -> RoleSpec:
        """The settings of one role with `common` merged in; the role's own values win, mapping by mapping."""
        spec = self.roles()[role]
        merged = deep_merge(self.common.model_dump(exclude_unset=True), spec.model_dump(exclude_unset=True))
        return RoleSpec(**merged)


def deep_merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` over `below`, mapping by mapping; lists and scalars are replaced whole."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = deep_merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
