"""`make_plan`: one recipe to everything that is decided, each decision with its reason. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from pdkit.facts.hardware import HardwareFacts, hardware_facts
from pdkit.facts.models import ModelFacts, model_facts
from pdkit.plan import blocks, network, placement, ports
from pdkit.plan.role import Draft, RolePlan, draft_role, finish_role
from pdkit.recipe.load import Loaded
from pdkit.recipe.schema import HardwareSpec, Recipe, Role
from pdkit.recipe.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A recipe with everything decided."""

    recipe: Recipe
    digest: str
    """sha256 over the recipe and the facts it stands on."""
    model: ModelFacts
    hardware: HardwareFacts
    roles: dict[Role, RolePlan]
    agreed_block_size: int | None
    """The size pinned on every role; None when nothing is pinned."""
    block_size_reason: str
    placement: tuple[placement.Process, ...]
    placement_fault: str
    """Why the endpoints cannot be placed; empty when they can."""
    process_ports: dict[str, ports.ProcessPorts]
    ports: tuple[ports.Port, ...]
    kv_transfer_mib_per_request: float | None

    @property
    def block_sizes_may_differ(self) -> bool:
        """Whether decode may have another block size than prefill: a multiple, on GPUs, without hybrid layers.

        NIXL then copies in blocks of prefill's size, with at least prefill's TP on decode (vllm 0.31
        nixl/base_worker.py:2471-2710). With the CPU build the same pair gave other answers (measured).
        """
        if self.model.hybrid or self.hardware.device != "cuda" or not {"prefill", "decode"} <= self.roles.keys():
            return False
        prefill, decode = self.roles["prefill"], self.roles["decode"]
        multiple = decode.block_size.value % prefill.block_size.value == 0
        return multiple and prefill.topology.tp <= decode.topology.tp

    @property
    def served_name(self) -> str:
        """The name by which clients ask for the model."""
        return self.recipe.model.served_name or self.recipe.model.path.rstrip("/").rsplit("/", 1)[-1]

    @property
    def http_port(self) -> int:
        """Where the frontends listen."""
        return self.recipe.infra.http_port + self.recipe.infra.port_shift

    @property
    def gpus(self) -> int:
        """GPUs that engines use."""
        return sum(role.gpus for role in self.roles.values())

    @property
    def gpus_allocated(self) -> int:
        """GPUs that the job holds, idle ones on its nodes included; on a machine without GPU the slots in use."""
        return self.nodes * self.hardware.gpus_per_node if self.hardware.device == "cuda" else self.gpus

    @property
    def nodes(self) -> int:
        """Nodes of the job."""
        return 1 + max((process.node for process in self.placement), default=-1)


def make_plan(loaded: Loaded, model: ModelFacts | None = None) -> Plan:
    """Plan one recipe, with the facts of the model that it names, or those given.

    Raises RecipeError: PD112 and PD114 for unknown facts, PD113 for a model config that lacks a field, PD115 for a
    dtype whose width is unknown.
    """
    recipe, source = loaded.recipe, loaded.source
    model = model or model_facts(recipe.model.facts, source.at(("model", "facts")))
    hardware = _hardware(recipe.hardware, source)
    drafts = {role: draft_role(loaded, role, model, hardware) for role in recipe.roles()}
    agreed, why = _agree(drafts)
    roles = {role: finish_role(draft, agreed, recipe, model, hardware) for role, draft in drafts.items()}
    topologies = {role: plan.topology for role, plan in roles.items()}
    fault, processes = "", []
    try:
        processes = placement.place(
            [(role, plan.topology, plan.endpoints) for role, plan in roles.items()], hardware.gpus_per_node
        )
    except placement.DoesNotSpreadError as error:
        fault = str(error)
    process_ports = ports.assign_ports(processes, topologies, recipe.infra.port_shift)
    decode = roles.get("decode")
    return Plan(
        recipe=recipe,
        digest=_digest(recipe, model, hardware),
        model=model,
        hardware=hardware,
        roles=roles,
        agreed_block_size=agreed,
        block_size_reason=why,
        placement=tuple(processes),
        placement_fault=fault,
        process_ports=process_ports,
        ports=tuple(ports.listening(processes, topologies, process_ports, recipe.infra)),
        kv_transfer_mib_per_request=network.transfer_mib_per_request(
            decode.layout, decode.topology, recipe.workload.isl
        )
        if decode
        else None,
    )


def _hardware(spec: HardwareSpec, source: Source) -> HardwareFacts:
    facts = hardware_facts(spec.facts, source.at(("hardware",)))
    changed = {key: getattr(spec, key) for key in ("nodes", "gpus_per_node", "gpu_memory_gib")}
    values = {name: getattr(facts, name) for name in facts.__dataclass_fields__}
    return HardwareFacts(**{**values, **{key: value for key, value in changed.items() if value is not None}})


def _agree(drafts: dict[Role, Draft]) -> tuple[int | None, str]:
    """The block size to pin on every role, and why; None when a role stands alone or asks for its own."""
    wishes = {role: draft.spec.block_size or "auto" for role, draft in drafts.items()}
    if any(wish != "auto" for wish in wishes.values()):
        return None, "set by the recipe: " + ", ".join(f"{role} {wish}" for role, wish in wishes.items())
    natural = {role: draft.shape.natural_block_size for role, draft in drafts.items()}
    text = ", ".join(f"{role} {size}" for role, size in natural.items())
    if len(drafts) == 1:
        return None, f"one role, nothing to agree on; vLLM settles on {text}"
    agreed = blocks.agreed_block_size([draft.shape for draft in drafts.values()])
    if len(set(natural.values())) == 1:
        return agreed, f"both roles settle on {agreed} by themselves; pinned so that it stays so"
    return agreed, f"natural sizes differ ({text}); {agreed} is the smallest that holds the state on both roles"


def _digest(recipe: Recipe, model: ModelFacts, hardware: HardwareFacts) -> str:
    text = json.dumps([recipe.model_dump(mode="json"), repr(model), repr(hardware)], sort_keys=True)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
