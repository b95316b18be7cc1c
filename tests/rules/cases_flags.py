"""Cases of the rules about flags, what stands inside them, and environment variables."""

from __future__ import annotations

from pathlib import Path

from .sides import AGG, Sides

ANY_WHITESPACE = "structured_outputs_config.disable_any_whitespace"
PROBED = f"engine.facts={Path(__file__).with_name('probe.json')}"
EXACT = ("engine.vllm=0.31.0", "engine.dynamo=1.6.1")
PLUS = {"also": ("PD027", "PD028", "PD062")}
"""What other rules may say of these versions and flags."""

CASES = [
    Sides(
        "PD022",
        ("decode.args.all2all-backend=deepep",),
        ("decode.args.all2all-backend=deepep_low_latency",),
        "'deepep' is not one of",
    ),
    Sides(
        "PD022",
        ("decode.args.mamba-cache-mode=align2",),
        ("decode.args.mamba-cache-mode=align",),
        "is not one of",
        also=("PD033", "PD062"),
    ),
    Sides(
        "PD022",
        (*EXACT, "decode.args.dyn-tool-call-parser=qwen4"),
        (*EXACT, "decode.args.dyn-tool-call-parser=qwen3_coder"),
        "'qwen4' is not one of",
        **PLUS,
    ),
    Sides(
        "PD022",
        ("common.mamba_cache_dtype=fp8_e5m2",),
        ("common.mamba_cache_dtype=float16",),
        "`--mamba-cache-dtype`: 'fp8_e5m2' is not one of",
    ),
    Sides(
        "PD016",
        (*EXACT, "common.args.dyn-tool-call-parsers=qwen3_coder"),
        (*EXACT, "common.args.dyn-tool-call-parser=qwen3_coder"),
        "no known vLLM version has a flag `--dyn-tool-call-parsers`",
        **PLUS,
    ),
    Sides(
        "PD016",
        (*EXACT, "decode.args.is-decode-worker=true"),
        ("engine.vllm=0.31.0", "decode.args.is-decode-worker=true", "engine.dynamo=1.2.1"),
        "Dynamo has no `--is-decode-worker` any more, since 1.4",
        **PLUS,
    ),
    Sides(
        "PD016",
        ("common.args.enable-reasoning=true",),
        ("common.args.reasoning-parser=qwen3",),
        "vLLM has no `--enable-reasoning` any more, since 0.10",
    ),
    Sides(
        "PD016",
        ("common.args.max-num-partial-prefills=2", "engine.vllm=0.27.0"),
        ("common.args.max-num-partial-prefills=2",),
        "vLLM 0.27.1 has no `--max-num-partial-prefills`",
        **PLUS,
    ),
    Sides("PD070", ("common.env.VLLM_ATTENTION_BACKEND=FLASHINFER",), (), "is read no more, since 0.15"),
    Sides(
        "PD070",
        (*EXACT, "common.env.VLLM_LOGING_LEVEL=DEBUG"),
        (*EXACT, "common.env.VLLM_LOGGING_LEVEL=DEBUG"),
        "vLLM 0.31.0 does not read `VLLM_LOGING_LEVEL`: it has no effect",
        **PLUS,
    ),
    Sides(
        "PD070",
        ("common.env.VLLM_MM_HASHER_ALGORITHM=sha256", "engine.vllm=0.31.0"),
        ("common.env.VLLM_MM_HASHER_ALGORITHM=sha256",),
        "is read no more, since 0.30",
        **PLUS,
    ),
    Sides(
        "PD070",
        ("common.env.DYN_LOGG=debug",),
        ("common.env.DYN_LOG=debug", "common.env.DYN_RUNTIME_OF_A_FAMILY=1"),
        "Dynamo 1.6.1 does not read `DYN_LOGG`",
        severity="warning",
    ),
    Sides(
        "PD070",
        ("common.env.UCX_RNDV_TRESH=8192",),
        ("common.env.UCX_RNDV_THRESH=8192",),
        "does not read `UCX_RNDV_TRESH`",
        severity="warning",
    ),
    Sides(
        "PD070",
        ("common.env.NIXL_LOGLEVEL=DEBUG",),
        ("common.env.NIXL_LOG_LEVEL=DEBUG",),
        "does not read `NIXL_LOGLEVEL`",
        severity="warning",
    ),
    Sides(
        "PD071",
        ("decode.args.compilation-config={pass_config: {fuse_norm_qant: true}}",),
        ("decode.args.compilation-config={pass_config: {fuse_norm_quant: true}}",),
        "there is no key `pass_config.fuse_norm_qant`",
    ),
    Sides(
        "PD071",
        ('decode.args.attention-config={"use_trtllm_attention": "maybe"}',),
        ('decode.args.attention-config={"use_trtllm_attention": "true"}',),
        "`use_trtllm_attention` takes true or false, not 'maybe'",
    ),
    Sides(
        "PD071",
        ("decode.args={attention-config.use_trtllm_attention: ''}",),
        ("decode.args={attention-config.use_trtllm_attention: true}",),
        "`use_trtllm_attention` takes true or false, not ''",
    ),
    Sides(
        "PD071",
        ("decode.args={structured-outputs-config.backend: xgramar}",),
        ("decode.args={structured-outputs-config.backend: xgrammar}",),
        "`backend` is 'xgramar', not one of",
    ),
    Sides(
        "PD071",
        ("decode.args.attention-config=flash",),
        ('decode.args.attention-config={"flash_attn_version": 3}',),
        "it takes a mapping, not 'flash'",
    ),
    Sides(
        "PD071",
        ("common.kv_transfer={extra: {kv_lease_durations: 60}}",),
        ("common.kv_transfer={extra: {kv_lease_duration: 60}}",),
        "reads `kv_lease_durations`: it has no effect",
        severity="warning",
    ),
    Sides(
        "PD072",
        ("decode.args.structured-outputs-config={disable_any_whitespace: true}",),
        ("decode.args.structured-outputs-config={disable_any_whitespace: true, backend: xgrammar}",),
        "only the backends xgrammar and guidance can",
    ),
    Sides(
        "PD072",
        (f"decode.args={{{ANY_WHITESPACE}: true}}",),
        (f"decode.args={{{ANY_WHITESPACE}: true, structured-outputs-config.backend: guidance}}",),
        "vLLM refuses it with `auto` too",
    ),
    Sides(
        "PD072",
        ("common.args={attention-backend: FLASHINFER, attention-config.backend: FLASHINFER}",),
        ("common.args={attention-backend: FLASHINFER}",),
        "vLLM refuses it beside `attention-config.backend`",
    ),
    Sides(
        "PD072",
        ("agg.args.enable-eplb=true", "agg.topology=TP8"),
        ("agg.args.enable-eplb=true", "agg.topology=TEP8"),
        "this topology has no +EP",
        recipe=AGG,
        also=("PD062", "PD054"),
    ),
    Sides(
        "PD072",
        ("decode.args.numa-bind-nodes=[0, 1]",),
        ("decode.args={numa-bind-nodes: [0, 1], numa-bind: true}",),
        "vLLM refuses it without `numa-bind`",
    ),
    Sides(
        "PD072",
        (*EXACT, "decode.args.connector=[nixl]"),
        EXACT,
        "parses it and then refuses it",
        **PLUS,
    ),
    Sides(
        "PD073",
        ("decode.args.enable-log-requests=true",),
        ("decode.args.enable-log-requests=false",),
        "Dynamo's worker sets it to false itself",
        severity="warning",
    ),
    Sides(
        "PD073",
        ("common.args.all2all-backend=pplx",),
        ("common.args.all2all-backend=deepep_low_latency",),
        "vLLM takes allgather_reducescatter instead",
        severity="warning",
    ),
    Sides(
        "PD073",
        ("decode.args.compilation-config={mode: 3}", "decode.enforce_eager=true"),
        ("decode.args.compilation-config={mode: 3}",),
        "switches compilation and graphs off",
        severity="warning",
        also=("PD008", "PD051"),
    ),
    Sides(
        "PD074",
        ("common.args.max-num-partial-prefills=2",),
        (),
        "`--max-num-partial-prefills` judged by vLLM 0.26.0 to 0.27.1",
        severity="info",
        also=("PD062",),
    ),
    Sides(
        "PD074",
        ("common.args.max-num-partial-prefills=2",),
        ("common.args.max-num-partial-prefills=2", "engine.vllm=0.26.0"),
        "is a build between these two",
        severity="info",
        also=("PD062",),
    ),
    Sides("PD074", ("engine.vllm=0.41.0",), EXACT, "0.41.0 is of no release", severity="info", also=("PD027",)),
    Sides(
        "PD075",
        (PROBED, "engine.vllm=0.30.0", "engine.dynamo=1.6.1"),
        (PROBED, *EXACT),
        "is of vllm 0.31.0, the recipe says 0.30.0",
        **PLUS,
    ),
    Sides(
        "PD075",
        (PROBED, "engine.vllm=0.31.1rc1.dev3+ga9a17e709", "engine.dynamo=1.6.1"),
        (PROBED, *EXACT),
        "the recipe says 0.31.1rc1.dev3",
        **PLUS,
    ),
    Sides(
        "PD074",
        ("infra.frontend_args={router-mode: kv}",),
        ("infra.frontend_args={router-mode: kv}", "engine.dynamo=1.6.1"),
        "`--router-mode` judged by Dynamo 1.6.1",
        severity="info",
    ),
    Sides(
        "PD074", ("engine.vllm=0.41.0",), (PROBED, *EXACT), "judged by vLLM 0.32.0", severity="info", also=("PD027",)
    ),
    Sides(
        "PD016",
        (PROBED, *EXACT, "common.args.optimization-level=2"),
        (*EXACT, "common.args.optimization-level=2"),
        "vLLM 0.31.0 has no `--optimization-level`; known in",
        **PLUS,
    ),
    Sides(
        "PD076",
        ("infra.frontend_args={router-mod: kv}", "engine.dynamo=1.6.1"),
        ("infra.frontend_args={router-mode: kv}", "engine.dynamo=1.6.1"),
        "the frontend of Dynamo 1.6.1 has no `--router-mod`",
    ),
    Sides(
        "PD076",
        ("infra.frontend_args={router-mode: kvv}", "engine.dynamo=1.6.1"),
        ("infra.frontend_args={router_mode: random}", "engine.dynamo=1.6.1"),
        "'kvv' is not one of",
    ),
    Sides(
        "PD076",
        ("infra.frontend_args={router-reset-states: true}", "engine.dynamo=1.6.1"),
        ("infra.frontend_args={router-reset-states: true}", "engine.dynamo=1.3.1"),
        "any more, since 1.4",
    ),
    Sides("PD076", ("infra.frontend_args={http-port: 9000}",), (), "pdkit sets `--http-port` itself", also=("PD074",)),
]
