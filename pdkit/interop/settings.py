"""The flags and variables of one srt-slurm role to pdkit's settings of a role.

What a role leaves out is left to vLLM, and pdkit would decide it by its own rules; so vLLM's defaults are written down.
"""

from __future__ import annotations

from typing import Any

from pdkit.facts.flags import FlagTable, lookup
from pdkit.facts.hardware import HardwareFacts
from pdkit.facts.models import ModelFacts
from pdkit.interop.draft import Draft
from pdkit.interop.reading import as_int, as_share
from pdkit.interop.types import SrtRole
from pdkit.plan.graphs import default_max_capture
from pdkit.recipe.owned import OWNED_ENV, OWNED_FLAGS, flag_name
from pdkit.recipe.yaml_marks import Path

DIRECT = {
    "block-size": "block_size",
    "dtype": "dtype",
    "kv-cache-dtype": "kv_cache_dtype",
    "mamba-cache-dtype": "mamba_cache_dtype",
    "mamba-ssm-cache-dtype": "mamba_ssm_cache_dtype",
    "enforce-eager": "enforce_eager",
    "gpu-memory-utilization": "gpu_memory_utilization",
    "max-num-seqs": "max_num_seqs",
    "max-num-batched-tokens": "max_num_batched_tokens",
    "max-cudagraph-capture-size": "max_cudagraph_capture_size",
}
"""Flags whose value is the value of a setting."""
COUNTS = ("block-size", "max-num-seqs", "max-num-batched-tokens", "max-cudagraph-capture-size", "max-model-len")
SERVER_SEQS, SERVER_TOKENS = 1024, 8192
"""vLLM's own max-num-seqs and max-num-batched-tokens on a GPU of 70 GiB and more (vllm 0.26 engine/arg_utils.py)."""
LAYOUT = "VLLM_SSM_CONV_STATE_LAYOUT"


class Settings:
    """Puts one role's settings into a draft."""

    def __init__(
        self,
        draft: Draft,
        role: SrtRole,
        common_env: dict[str, str],
        *,
        model: ModelFacts | None,
        hardware: HardwareFacts,
        table: FlagTable,
    ) -> None:
        self.draft, self.role, self.common_env = draft, role, common_env
        self.model, self.hardware, self.table = model, hardware, table
        self.left = dict(role.flags)

    def fill(self) -> None:
        """Everything that the role says, then what it leaves to vLLM."""
        tp = next((key for key in ("tensor-parallel-size", "data-parallel-size") if key in self.role.flag_keys), "")
        self.put("topology", str(self.role.topology), self._flag(tp) if tp else self.role.path)
        if self.role.workers > 1:
            self.put("endpoints", self.role.workers, _workers_path(self.role))
        self._direct()
        self._model_len()
        self._speculation()
        self._graphs()
        self._prefix_caching()
        self._kv_transfer()
        self._environment()
        self._sizes()
        for name, value in self.left.items():
            self._free(name, value)

    def put(self, name: str, value: Any, where: Path) -> None:
        """One setting of the role."""
        self.draft.put((self.role.role, name), value, where)

    def _flag(self, name: str) -> Path:
        return (*self.role.path, self.role.flag_keys.get(name, name))

    def _take(self, name: str) -> Any:
        value = self.left.pop(name, None)
        if name == "gpu-memory-utilization":
            return as_share(value)
        return as_int(value) if name in COUNTS and as_int(value) is not None else value

    def _given(self, name: str) -> Any:
        return self.draft.data[self.role.role].get(name)

    def _direct(self) -> None:
        for flag, name in DIRECT.items():
            value = self._take(flag)
            if value is not None and not (flag == "enforce-eager" and value is False):
                self.put(name, value, self._flag(flag))
        if not self._given("block_size"):
            self.put("block_size", "natural", self.role.path)  # pdkit would pin one size on both roles
        for flag in ("kv-cache-memory-bytes", "kv-cache-memory"):
            size = as_int(self._take(flag))
            if size is not None:
                self.put("kv_cache_memory_gib", size / 2**30, self._flag(flag))

    def _model_len(self) -> None:
        value, flag = self._take("max-model-len"), self._flag("max-model-len")
        if value is not None and value not in ("auto", -1):
            self.put("max_model_len", value, flag)
        elif self.model:
            why = f"vLLM takes the model's own {self.model.max_position_embeddings} tokens"
            self.put("max_model_len", self.model.max_position_embeddings, flag)
            self.draft.note("added", flag, why)
        else:
            self.draft.note("changed", flag, "vLLM takes the model's own length, pdkit that of the load")

    def _speculation(self) -> None:
        flag = next((one for one in ("speculative-config", "spec-method") if one in self.left), "")
        config = self.left.pop("speculative-config", None) or {}
        method = config.get("method", self.left.pop("spec-method", None))
        tokens = as_int(config.get("num_speculative_tokens", self.left.pop("spec-tokens", None)))
        if not flag:
            self.put("mtp", 0, self.role.path)
            return
        if tokens is None:
            message = f"{self.role.role}: `{flag}` without a number of speculative tokens"
            self.draft.fault("PD126", self._flag(flag), message, "for example num_speculative_tokens: 3")
            tokens = 0
        self.put("mtp", tokens, self._flag(flag))
        more = {key: value for key, value in config.items() if key not in ("method", "num_speculative_tokens")}
        if method and not str(method).endswith("mtp"):
            more = {"method": method, **more}
        if more:
            self.put("speculative", more, self._flag(flag))

    def _graphs(self) -> None:
        flag = self._flag("compilation-config")
        config = dict(self.left.pop("compilation-config", None) or {})
        mode = config.pop("cudagraph_mode", None)
        listed = self.left.pop("cudagraph-capture-sizes", None)  # the same list as a flag of its own
        sizes, largest = config.pop("cudagraph_capture_sizes", listed), config.pop("max_cudagraph_capture_size", None)
        if sizes and isinstance(sizes, list):
            largest = max(filter(None, map(as_int, sizes)), default=None)
            why = "pdkit gives the largest capture size, the steps between are vLLM's"
            self.draft.note("changed", flag, why, f"{self.role.role}.cudagraph_capture_sizes", sizes)
        if largest is not None and not self._given("max_cudagraph_capture_size"):
            self.put("max_cudagraph_capture_size", largest, flag)
        if mode is not None:
            self.put("cudagraph_mode", mode, flag)
        elif not self._given("enforce_eager"):
            self.put("cudagraph_mode", "FULL_AND_PIECEWISE", flag)
            self.draft.note("added", flag, "vLLM's default is FULL_AND_PIECEWISE", f"{self.role.role}.cudagraph_mode")
        if config:
            self.draft.put((self.role.role, "args", "compilation-config"), config, flag)

    def _prefix_caching(self) -> None:
        on, off = self._take("enable-prefix-caching"), self._take("no-enable-prefix-caching")
        if on or off:
            self.put("prefix_caching", on is True, self._flag(f"{'' if on else 'no-'}enable-prefix-caching"))
            return
        by_default = not (self.model and self.model.hybrid)
        self.put("prefix_caching", by_default, self.role.path)
        if by_default:
            what = f"{self.role.role}.prefix_caching"
            self.draft.note("added", self.role.path, "vLLM switches it on by default", what)

    def _kv_transfer(self) -> None:
        config, where = dict(self.role.kv_transfer or {}), self._flag("kv-transfer-config")
        if self.role.kv_transfer is None:
            if self.role.role != "agg":
                self.put("kv_transfer", "none", self.role.path)
            return
        found: dict[str, Any] = {}
        kv_role = config.pop("kv_role", "kv_both")
        own = {"prefill": "kv_producer", "decode": "kv_consumer"}.get(self.role.role)
        if kv_role == own:
            found["kv_role"] = "by_role"
        elif kv_role != "kv_both":
            self.draft.note("changed", where, f"kv_role {kv_role} is written kv_both", "", kv_role)
        for key, name in (
            ("kv_connector", "connector"),
            ("kv_load_failure_policy", "load_failure_policy"),
            ("kv_buffer_device", "buffer_device"),
            ("kv_connector_extra_config", "extra"),
        ):
            if key in config:
                found[name] = config.pop(key)
        self.put("kv_transfer", found, where)
        if config:
            why = f"a recipe has no place for {', '.join(config)} of the connector"
            self.draft.note("dropped", where, why, "", config)

    def _environment(self) -> None:
        path = _env_path(self.role)
        places: dict[str, Path] = {name: (*path, name) for name in self.role.env}
        places |= {name: ("environment", name) for name in self.common_env}  # these win (cli/mixins/worker_stage.py)
        env = {**self.role.env, **self.common_env}
        for name, value in env.items():
            if name == LAYOUT:
                self.put("conv_state_layout", value, places[name])
            elif name in OWNED_ENV:
                self.draft.note("changed", places[name], f"pdkit sets it itself: {OWNED_ENV[name]}")
            else:
                self.draft.put((self.role.role, "env", name), value, places[name])
                if "{node}" in value or "{node_id}" in value:
                    self.draft.note("changed", places[name], "srt-slurm fills in the node, pdkit does not")
        if LAYOUT not in env and self.model and self.model.hybrid and self.role.kv_transfer:
            self.put("conv_state_layout", "SD", path)  # vLLM's own; NIXL asserts DS at start-up

    def _sizes(self) -> None:
        """vLLM's own sizes where the role gives none (vllm 0.26 engine/arg_utils.py, config/vllm.py)."""
        given, where = self.draft.data[self.role.role], self.role.path
        tokens = given.get("max_num_batched_tokens")
        if tokens is None:
            tokens = SERVER_TOKENS
            self.put("max_num_batched_tokens", tokens, where)
            self.draft.note("added", where, f"vLLM's default is {tokens}", f"{self.role.role}.max_num_batched_tokens")
        if given.get("max_num_seqs") is None:
            seqs = min(SERVER_SEQS, tokens) if isinstance(tokens, int) and tokens > 0 else SERVER_SEQS
            self.put("max_num_seqs", seqs, where)
            self.draft.note("added", where, f"vLLM's default is {seqs}", f"{self.role.role}.max_num_seqs")
        seqs, mtp = given["max_num_seqs"], given["mtp"]
        graphs = self.hardware.default_max_capture and not given.get("enforce_eager")
        if graphs and self.role.role != "prefill" and "max_cudagraph_capture_size" not in given:
            numbers = [one for one in (seqs, mtp, tokens) if isinstance(one, int)]
            if len(numbers) == 3 and min(seqs, tokens) > 0:
                size = default_max_capture(seqs, mtp, self.hardware.default_max_capture, tokens)
                what = f"{self.role.role}.max_cudagraph_capture_size"
                self.put("max_cudagraph_capture_size", size, where)
                self.draft.note("added", where, f"vLLM's default is {size}", what)

    def _free(self, name: str, value: Any) -> None:
        """A flag without a place of its own: into `args`, spelled as vLLM's table does."""
        where = self._flag(name)
        if name == "served-model-name":
            return
        owner = OWNED_FLAGS.get(flag_name(name))
        if owner:
            self.draft.note("changed", where, f"pdkit decides it: {owner.removeprefix('nothing: ')}")
        elif value is False:
            self.draft.note("changed", where, "srt-slurm gives no flag for false, and neither does the recipe")
        else:
            positive = name.removeprefix("no-")
            turned = value is True and name != positive and lookup(positive, self.table) is not None
            self.draft.put((self.role.role, "args", positive if turned else name), not turned and value, where)


def _workers_path(role: SrtRole) -> Path:
    return ("roles", role.role, "workers") if role.path[0] == "roles" else ("resources", f"{role.role}_workers")


def _env_path(role: SrtRole) -> Path:
    return ("roles", role.role, "env") if role.path[0] == "roles" else ("backend", f"{role.path[-1]}_environment")
