"""Rules about what the API promises beside plain text, and about machines whose memory CPU and GPU share."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.facts.flags import dynamo_table, lookup
from pdkit.plan.role import RolePlan
from pdkit.recipe.load import nearest
from pdkit.rules.given import key_of, option, switch
from pdkit.rules.rule import Case, Hit, rule
from pdkit.rules.versions import version


@rule(
    "PD042",
    "The tool parser reads what the model's template asks for",
    "A parser of another form finds no call, or a mangled one, and the answer is still HTTP 200 (vllm#56077, "
    "vllm#38106, vllm#42021). The chat template says in which form the model calls.",
)
def tool_parser_fits(case: Case) -> Iterator[Hit]:
    """`serving.tool_parser` against the model's facts or chat template, and Dynamo's own names."""
    yield from _parser(case, "tool_parser", "dyn-tool-call-parser", case.plan.model.tool_parser)


@rule(
    "PD043",
    "The reasoning parser reads this model's thinking",
    "With the wrong parser the thinking lands in the answer, or the answer in the thinking and the content is empty "
    "(eliza#10670). Without one a call that the model only thinks of is taken for a call (vllm#39056).",
)
def reasoning_parser_fits(case: Case) -> Iterator[Hit]:
    """`serving.reasoning_parser` against the model; that a thinking model with tools has one, and not vLLM's alone."""
    model, serving = case.plan.model, case.plan.recipe.serving
    yield from _parser(case, "reasoning_parser", "dyn-reasoning-parser", model.reasoning_parser)
    if serving.tool_parser and not serving.reasoning_parser and model.thinking in ("always", "switchable"):
        yield Hit(
            message=f"`{model.name}` thinks, and without reasoning parser tool calls are also read out of its thinking",
            path=("serving", "tool_parser"),
            fix=f"set `serving.reasoning_parser: {model.reasoning_parser or 'qwen3'}`",
            severity="warning",
        )
    for role in case.plan.roles.values():
        if not serving.reasoning_parser and (key := key_of(role, "reasoning-parser")):
            yield Hit(
                message=f"{role.role}: vLLM's `--reasoning-parser` only guides structured output; Dynamo splits "
                "thinking from the answer by a parser of its own",
                path=case.where(role.role, "args", key),
                fix="set `serving.reasoning_parser` too, or remove it",
                severity="warning",
                key=True,
            )


SAME_FORM = {"deepseek_r1": "qwen3", "qwen25": "hermes"}
"""Parsers that read the form of another: `<think>`, whose beginning the prompt may hold, and JSON in `<tool_call>`."""


def _parser(case: Case, name: str, flag: str, right: str | None) -> Iterator[Hit]:
    given: str | None = getattr(case.plan.recipe.serving, name)
    if given is None:
        return
    path, model = ("serving", name), case.plan.model.name
    dynamo = dynamo_table(case.plan.recipe.engine.dynamo, "worker")
    choices = known.choices if (known := lookup(flag, dynamo)) else ()
    if choices and given not in choices:
        yield Hit(
            message=f"Dynamo {dynamo.version} has no {name.replace('_', ' ')} `{given}`",
            path=path,
            fix=nearest(given, map(str, choices)) or f"one of {', '.join(map(str, choices))}",
            severity="error" if dynamo.exact else "warning",
        )
    elif right is None:
        message = f"no facts say in which form `{model}` writes, so `{given}` is not checked"
        yield Hit(message=message, path=path, fix="send a request that calls a tool, and look", severity="info")
    elif right == "none":
        message = f"the chat template of `{model}` knows no tools, so `{given}` will never find a call"
        yield Hit(message=message, path=path, fix=f"remove `serving.{name}`, or serve with another chat template")
    elif SAME_FORM.get(given) == right:
        if given == "deepseek_r1" and case.plan.model.thinking == "switchable":
            message = f"`{given}` takes all that `{model}` writes for thinking until that ends, also where it is off"
            fix = f"set `serving.{name}: {right}`, or accept this for a checkpoint that only thinks"
            yield Hit(message=message, path=path, fix=fix, severity="warning")
    elif given != right:
        message = f"`{given}` does not read what `{model}` writes"
        yield Hit(message=message, path=path, fix=f"set `serving.{name}: {right}`")


@rule(
    "PD044",
    "A thinking budget binds",
    "`reasoning-config` lets requests limit their thinking. With a draft vLLM before 0.22 never enforces it, and later "
    "only one of its two model runners does (vllm#39573, vllm#54906, vllm#44510): a request thinks up to its limit.",
)
def budget_binds(case: Case) -> Iterator[Hit]:
    """`reasoning-config` beside MTP on the generating role."""
    role, engine = case.generating, case.plan.recipe.engine.vllm
    if not role.mtp or option(role, "reasoning-config") is None:
        return
    never = version(engine).has("0.22") is False
    yield Hit(
        message=f"{role.role}: beside MTP vLLM {engine} {'does' if never else 'may'} not enforce thinking budgets",
        path=case.where(role.role, "args", key_of(role, "reasoning-config") or "reasoning-config"),
        fix="switch MTP off, or see one request stop at its budget before you rely on it",
        severity="error" if never else "warning",
    )


POWERS = {
    "allowed-local-media-path": "a prompt can name files of the server",
    "trust-request-chat-template": "a request can bring its own chat template",
    "enable-prompt-embeds": "a request can bring tensors, which are unpickled and crash the engine when malformed",
}
"""Flags that give the writer of a request power over the server (help texts and notes of vLLM itself)."""


@rule(
    "PD045",
    "Untrusted input has no power over the server or its tools",
    "Text that others wrote ends up in the prompt: flags that let a request name files or bring templates are then "
    "open to them, and a tool call in the answer may be theirs.",
)
def untrusted_input_has_no_power(case: Case) -> Iterator[Hit]:
    """`serving.untrusted_input` against risky flags and a tool parser."""
    serving = case.plan.recipe.serving
    if not serving.untrusted_input:
        return
    for role in case.plan.roles.values():
        for flag, power in POWERS.items():
            if option(role, flag) not in (None, "") and switch(role, flag):
                yield Hit(
                    message=f"{role.role}: input is not trusted, and with `--{flag}` {power}",
                    path=case.where(role.role, "args", key_of(role, flag) or flag),
                    fix="remove it",
                    key=True,
                )
    if serving.tool_parser:
        yield Hit(
            message="input is not trusted, and its author can make the model call tools",
            path=("serving", "tool_parser"),
            fix="let a person or a fixed list confirm each call, and accept this with that reason; or leave tools out",
            severity="warning",
        )


HANGING_TOKENS = 32768
"""65536 batched tokens hang the host, 32768 ran (AEON-7/vllm-dflash#1)."""
CAREFUL_TOKENS = 8192
"""With 8192 batched tokens and 32 sequences a box ran that had hung with the defaults (measured)."""
CAREFUL_SEQS = 32
MOST_SHARE = 0.90
"""Above it nothing is left for the system; 0.87 was never reached by some (MiaAI-Lab/GLM-5.3-Flash-EXL3#47)."""
CAREFUL_SHARE = 0.70
"""At 0.70 of 118.6 GiB (83 GiB) profiling still took 112 GiB, and the box had to be power cycled (vllm#46307)."""
DEFAULT_SHARE = 0.92


@rule(
    "PD046",
    "Memory that CPU and GPU share is budgeted with room for the system",
    "On unified memory gpu-memory-utilization is no ceiling: profiling goes beyond it and the machine dies, not the "
    "process (vllm#46307). Batched tokens and sequences decide by how much (AEON-7/vllm-dflash#1, minefield#2).",
)
def unified_memory_has_room(case: Case) -> Iterator[Hit]:
    """Batched tokens, sequences, utilization and a fixed KV size, on hardware with unified memory."""
    if not case.plan.hardware.unified_memory:
        return
    for role in case.plan.roles.values():
        yield from _unified_faults(case, role)


def _unified_faults(case: Case, role: RolePlan) -> Iterator[Hit]:
    tokens, seqs = role.sizing.max_num_batched_tokens.value, role.sizing.max_num_seqs.value
    share, total = role.settings.gpu_memory_utilization or DEFAULT_SHARE, case.plan.hardware.gpu_memory_gib
    fixed = role.settings.kv_cache_memory_gib

    def hit(message: str, name: str, fix: str, *, sure: bool) -> Hit:
        return Hit(
            message=f"{role.role}: {message}",
            path=case.where(role.role, name),
            fix=fix,
            severity="error" if sure else "warning",
        )

    if tokens > CAREFUL_TOKENS:
        beyond = tokens > HANGING_TOKENS
        text = (
            "have hung such a box"
            if beyond
            else f"take more in profiling than the {CAREFUL_TOKENS} that are known to run"
        )
        yield hit(
            f"max-num-batched-tokens {tokens} {text}",
            "max_num_batched_tokens",
            f"set it to {CAREFUL_TOKENS}",
            sure=beyond,
        )
    if seqs > CAREFUL_SEQS:
        text = f"max-num-seqs {seqs} is more than the {CAREFUL_SEQS} that are known to run"
        yield hit(text, "max_num_seqs", f"set it to {CAREFUL_SEQS}", sure=False)
    if fixed is not None:
        text = f"a fixed KV cache of {fixed} GiB skips the profiling that would clamp it (AEON-7/vllm-ultimate#9)"
        yield hit(text, "kv_cache_memory_gib", "set gpu_memory_utilization instead", sure=False)
    elif share > MOST_SHARE or (share > CAREFUL_SHARE and tokens > CAREFUL_TOKENS):
        text = f"utilization {share} of {total} GiB leaves {total * (1 - share):.1f} GiB to the system and the rest"
        yield hit(text, "gpu_memory_utilization", f"at most {CAREFUL_SHARE}", sure=share > MOST_SHARE)
