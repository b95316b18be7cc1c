"""Facts of models: known ones from `facts/models/*.yaml`, any other from its Hugging Face `config.json`."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pdkit.errors import RecipeError
from pdkit.facts.config_fields import HINT, check_fields
from pdkit.facts.templates import parsers_of
from pdkit.facts.weights import weights_from_config
from pdkit.paths import expand, facts_folder
from pdkit.recipe.yaml_marks import parse


@dataclass(frozen=True, slots=True, kw_only=True)
class Gdn:
    """Gated-delta-net (linear attention) layers: a fixed-size state per request instead of KV per token."""

    layers: int
    num_k_heads: int
    num_v_heads: int
    k_head_dim: int
    v_head_dim: int
    conv_kernel: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Experts of each layer."""

    experts: int
    active_experts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Checkpoint size in GiB: expert weights are spread over EP, the dense rest is sliced by TP."""

    experts_gib: float
    dense_gib: float
    total_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """GiB per GPU that vLLM reported at start-up for one configuration."""

    hardware: str
    topology: str
    mtp: int
    max_num_seqs: int
    max_num_batched_tokens: int
    cudagraphs: int
    cuda_context_gib: float
    non_torch_gib: float
    weights_gib: float
    peak_activation_gib: float
    cudagraph_estimate_gib: float
    cudagraph_used_gib: float
    kv_cache_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What the plan needs to know of a model."""

    name: str
    architecture: str
    dtype: str
    max_position_embeddings: int
    full_attention_layers: int
    num_kv_heads: int
    head_dim: int
    weights: Weights | None
    """None when the size cannot be derived; then the recipe must say `model.weights_gib`."""
    hidden_size: int | None = None
    mtp_layers: int = 0
    """Full-attention layers of the MTP head; each joins the KV cache when MTP is on."""
    ssm_dtype: str | None = None
    """What `--mamba-ssm-cache-dtype auto` means for this model; None: the model's dtype."""
    gdn: Gdn | None = None
    moe: Moe | None = None
    thinking: str = "unknown"
    """`always`, `switchable`, `never` or `unknown`."""
    tool_parser: str | None = None
    """Dynamo's parser for the calls that the chat template asks for; `none` where it knows no tools, None: unknown."""
    reasoning_parser: str | None = None
    """Dynamo's parser for the model's thinking; None: unknown."""
    measured: tuple[MeasuredMemory, ...] = ()

    @property
    def layers(self) -> int:
        """All decoder layers, without the MTP head."""
        return self.full_attention_layers + (self.gdn.layers if self.gdn else 0)

    @property
    def hybrid(self) -> bool:
        """Whether GDN layers stand beside full attention."""
        return self.gdn is not None


def known_models() -> list[str]:
    """Names of the models that pdkit ships facts for."""
    return sorted(path.stem for path in facts_folder("models").glob("*.yaml"))


def model_facts(name: str, at: str) -> ModelFacts:
    """The facts of a model by name, or by path or URL of its `config.json`.

    `at` is where the recipe names it. Raises RecipeError: PD112 for an unknown name or unreadable file, PD113 when
    the config lacks a field or describes something that pdkit cannot plan.
    """
    if name in known_models():
        return _shipped_model(name)
    if name.startswith(("http://", "https://")):
        return _from_config(_download(name, at), name, at)
    path = _config_file(name)
    if path is not None:
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise RecipeError(f"{path} is not JSON: {error}", at=at, fix=HINT, code="PD112") from None
        facts = _from_config(config, (path.parent.name if path.name == "config.json" else path.stem) or name, at)
        tool, reasoning = parsers_of(path.parent) if path.name == "config.json" else (None, None)
        return replace(facts, tool_parser=tool, reasoning_parser=reasoning)
    close = difflib.get_close_matches(name, known_models(), n=1)
    fix = f"did you mean `{close[0]}`?" if close else f"known: {', '.join(known_models())}; or a path to a config.json"
    raise RecipeError(f"no facts for the model `{name}`", at=at, fix=fix, code="PD112")


@cache
def _shipped_model(name: str) -> ModelFacts:
    path = facts_folder("models") / f"{name}.yaml"
    data: dict[str, Any] = parse(path.read_text(encoding="utf-8"), str(path)).data
    for key, kind in (("gdn", Gdn), ("moe", Moe), ("weights", Weights)):
        data[key] = kind(**data[key]) if data.get(key) else None
    data["measured"] = tuple(MeasuredMemory(**row) for row in data.get("measured", []))
    return ModelFacts(**data)


def _config_file(name: str) -> Path | None:
    path = Path(expand(name))
    try:
        path = path / "config.json" if path.is_dir() else path
        return path if path.is_file() else None
    except OSError:  # longer than a file name may be
        return None


def _download(url: str, at: str) -> Any:
    import requests  # noqa: PLC0415  (heavy, and only needed for a URL)

    try:
        answer = requests.get(url, timeout=20)
        answer.raise_for_status()
        return answer.json()
    except (requests.RequestException, ValueError) as error:
        fix = "download the config.json and give its path"
        raise RecipeError(f"{url} cannot be read: {error}", at=at, fix=fix, code="PD112") from None


def _from_config(config: Any, name: str, at: str) -> ModelFacts:
    if not isinstance(config, dict):
        raise RecipeError(f"the config.json of `{name}` is not a mapping", at=at, fix=HINT, code="PD113")
    text = config.get("text_config") or {}
    if not isinstance(text, dict):
        message = f"`text_config` in the config.json of `{name}` is not a mapping"
        raise RecipeError(message, at=at, fix=HINT, code="PD113")
    return config_facts({**config, **text}, name, at)


def config_facts(config: dict[str, Any], name: str, at: str) -> ModelFacts:
    """Facts out of a Hugging Face text config; RecipeError PD113 names the field that is missing or not supported."""

    def need(key: str) -> Any:
        if not config.get(key):
            fix = f"add `{key}` to the config, or choose a model that pdkit knows: {', '.join(known_models())}"
            raise RecipeError(f"the config.json of `{name}` has no `{key}`", at=at, fix=fix, code="PD113")
        return config[key]

    check_fields(config, name, at)
    layers, heads = need("num_hidden_layers"), need("num_attention_heads")
    full = _full_attention_layers(config, layers)
    moe = _moe(config, need)
    gdn = None
    if full < layers:
        gdn = Gdn(
            layers=layers - full,
            num_k_heads=need("linear_num_key_heads"),
            num_v_heads=need("linear_num_value_heads"),
            k_head_dim=need("linear_key_head_dim"),
            v_head_dim=need("linear_value_head_dim"),
            conv_kernel=need("linear_conv_kernel_dim"),
        )
    hidden = need("hidden_size")
    return ModelFacts(
        name=name,
        architecture=str((config.get("architectures") or ["unknown"])[0]),
        dtype=config.get("dtype") or need("torch_dtype"),
        max_position_embeddings=need("max_position_embeddings"),
        hidden_size=hidden,
        full_attention_layers=full,
        num_kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or hidden // heads,
        mtp_layers=config.get("mtp_num_hidden_layers") or config.get("num_nextn_predict_layers") or 0,
        ssm_dtype=config.get("mamba_ssm_dtype"),
        gdn=gdn,
        moe=moe,
        weights=_weights(config, full),
    )


def _weights(config: dict[str, Any], full_layers: int) -> Weights | None:
    sizes = weights_from_config(config, full_layers)
    return sizes and Weights(experts_gib=sizes[0], dense_gib=sizes[1], total_gib=sum(sizes))


def _moe(config: dict[str, Any], need: Any) -> Moe | None:
    experts = config.get("num_experts") or config.get("n_routed_experts") or config.get("num_local_experts")
    return Moe(experts=experts, active_experts=need("num_experts_per_tok")) if experts else None


def _full_attention_layers(config: dict[str, Any], layers: int) -> int:
    if config.get("layer_types"):
        return sum(kind == "full_attention" for kind in config["layer_types"])
    interval = config.get("full_attention_interval")
    return layers // interval if interval else layers
