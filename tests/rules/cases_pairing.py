"""Cases of the rules about what prefill and decode must have in common."""

from __future__ import annotations

from .sides import DENSE, Sides

NIXL = "connector: NixlConnector"
MULTI = "connector: MultiConnector, extra: {connectors: [{kv_connector: NixlConnector}, {kv_connector: %s}]}"
PUSH = "{connector: NixlPushConnector}"
EAGLE = "common.speculative={method: eagle3, model: /models/draft}"
HYBRID = "local/tiny_hybrid_pd.yaml"
LONG_WAIT = ("decode.max_num_seqs=4", "workload.osl=8192")
KEEP_ON = "common.args.disable-hybrid-kv-cache-manager"
CASES = [
    Sides(
        "PD001",
        (*DENSE, "prefill.block_size=64", "decode.block_size=128"),
        (*DENSE, "common.block_size=128"),
        "vLLM cuts them on receipt, which nobody measured",
        severity="warning",
    ),
    Sides(
        "PD001", (*DENSE, "prefill.block_size=128", "decode.block_size=64"), DENSE, "the recipe sets different sizes"
    ),
    Sides(
        "PD001",
        (*DENSE, "prefill.topology=TP8", "decode.topology=TP4", "prefill.block_size=64", "decode.block_size=128"),
        (*DENSE, "prefill.topology=TP8", "decode.topology=TP4"),
        "blocks of 64 tokens and decode of 128: the recipe sets different sizes",
    ),
    Sides(
        "PD010",
        (*DENSE, "prefill.mtp=0", "decode.mtp=3", EAGLE),
        (*DENSE, "prefill.mtp=2", "decode.mtp=3", EAGLE),
        "prefill has eagle3 0, decode has eagle3 3, and NIXL pairs them all the same",
    ),
    Sides(
        "PD010",
        (*DENSE, "engine.vllm=0.28.0", "prefill.mtp=0", "decode.mtp=3", EAGLE),
        (*DENSE, "engine.vllm=0.28.0", "prefill.mtp=0", "decode.mtp=3", "common.speculative={method: ngram}"),
        "prefill has eagle3 0, decode has eagle3 3",
    ),
    Sides(
        "PD010",
        (*DENSE, "decode.mtp=3", "decode.speculative={method: eagle3, model: /a}", "prefill.speculative={model: /b}"),
        (*DENSE, "decode.mtp=3", "decode.speculative={method: eagle3, model: /a}"),  # prefill follows, method and all
        "prefill has MTP 3, decode has eagle3 3",
        also=("PD023",),
    ),
    Sides(
        "PD014",
        ("prefill.kv_transfer={%s}" % (MULTI % "MooncakeConnector"),),
        ("prefill.kv_transfer={%s}" % (MULTI % "OffloadingConnector"), f"decode.kv_transfer={{{NIXL}}}"),
        "KV connectors differ",
    ),
    Sides(
        "PD024",
        ("common.kv_transfer={connector: OffloadingConnector}",),
        (f"common.kv_transfer={{{NIXL}}}",),
        "`OffloadingConnector` hands no KV",
    ),
    Sides(
        "PD024",
        (f"common.kv_transfer={PUSH}", "engine.dynamo=1.6.1"),
        ("common.kv_transfer={connector: MooncakeConnector}", "engine.dynamo=1.6.1"),
        "Dynamo 1.6.1 does not pair prefill and decode with `NixlPushConnector`",
    ),
    Sides("PD024", (f"common.kv_transfer={PUSH}",), (), "whether 1.2.0.dev20260526 does is not known", severity="info"),
    Sides(
        "PD024",
        ("common.kv_transfer={connector: OurOwnConnector}",),
        (),
        "does not know whether `OurOwnConnector`",
        severity="info",
        also=("PD022", "PD075"),
    ),
    Sides(
        "PD025",
        ("common.kv_transfer={connector: LMCacheMPConnector}",),
        (*DENSE, "common.kv_transfer={connector: LMCacheMPConnector}"),
        "does not carry the state of a hybrid model in any known vLLM",
        also=("PD024",),
    ),
    Sides(
        "PD025",
        ("engine.vllm=0.21.0", "common.args.async-scheduling=false"),
        ("engine.vllm=0.22.0", "common.args.async-scheduling=false"),
        "`NixlConnector` does not carry the state of a hybrid model before vLLM 0.22",
        also=("PD022",),
    ),
    Sides(
        "PD025",
        ("engine.vllm=0.21.1rc1.dev7+g0123456", "common.args.async-scheduling=false"),
        (),
        "whether 0.21.1rc1.dev7+g0123456 does is not known",
        severity="info",
        also=("PD022",),
    ),
    Sides("PD026", (f"{KEEP_ON}=true",), (f"{KEEP_ON}=false",), "decode: the hybrid KV cache manager is switched off"),
    Sides(
        "PD026",
        ("engine.vllm=0.21.0",),
        ("engine.vllm=0.22.0",),
        "is switched off by the connector in 0.21.0",
        recipe=HYBRID,
        also=("PD025", "PD028"),
    ),
    Sides(
        "PD026",
        ("engine.vllm=0.21.1rc1.dev7+g0123456",),
        ("engine.vllm=0.21.1rc1.dev7+g0123456", f"{KEEP_ON}=false"),
        "may be switched off by the connector",
        recipe=HYBRID,
        severity="warning",
        also=("PD025", "PD028"),
    ),
    Sides(
        "PD026",
        ("decode.args.no_disable_hybrid_kv_cache_manager=false",),
        ("common.args.no_disable_hybrid_kv_cache_manager=false",),
        "on one role only",
        recipe="local/tiny_pd.yaml",
    ),
    Sides(
        "PD027",
        ("engine.vllm=0.32.0",),
        ("engine.vllm=0.32.0", "common.kv_transfer={kv_role: by_role}"),
        "prefill and decode: kv_role `kv_both` is deprecated",
        severity="warning",
    ),
    Sides("PD027", ("engine.vllm=0.32.0",), ("engine.vllm=0.31.0",), "is deprecated", severity="warning"),
    Sides(
        "PD028",
        ("engine.vllm=0.25.0",),
        ("engine.vllm=0.25.0", "decode.args.async-scheduling=false"),
        "0.25.0 lacks one of the two fixes",
    ),
    Sides("PD028", ("engine.vllm=0.23.0",), ("engine.vllm=0.26.0",), "0.23.0 lacks the two fixes"),
    Sides(
        "PD028",
        ("engine.vllm=0.23.0", "hardware=generic"),
        ("engine.vllm=0.23.0", "hardware=generic", "decode.args.no-async-scheduling=true"),
        "0.23.0 lacks the two fixes",
        recipe=HYBRID,
        also=("PD001", "PD002"),
    ),
    Sides(
        "PD028",
        ("engine.vllm=0.25.1rc1.dev3+g0123456",),
        (*DENSE, "engine.vllm=0.25.1rc1.dev3+g0123456"),
        "may lack",
        severity="warning",
    ),
    Sides(
        "PD029",
        ("engine.vllm=0.23.0", "prefill.prefix_caching=true"),
        ("engine.vllm=0.23.0", "prefill.prefix_caching=true", "decode.mtp=0"),
        "0.23.0 cannot do prefix caching with MTP in layout DS",
        also=("PD028", "PD040", "PD041"),
    ),
    Sides(
        "PD029",
        ("prefill.prefix_caching=true",),
        (),
        "has cost hybrid models accuracy",
        severity="warning",
        also=("PD040", "PD041"),
    ),
    Sides(
        "PD029",
        ("engine.vllm=0.23.1rc1.dev5+g0123456", "prefill.prefix_caching=true"),
        (*DENSE, "engine.vllm=0.23.1rc1.dev5+g0123456", "prefill.prefix_caching=true"),
        "is not known",
        severity="warning",
        also=("PD028", "PD040", "PD041"),
    ),
    Sides(
        "PD029",
        ("decode.mtp=1", "prefill.prefix_caching=true", "model.facts=qwen3-next-80b"),
        ("decode.mtp=0", "prefill.prefix_caching=true", "model.facts=qwen3-next-80b"),
        "needs a Triton kernel",
        recipe="local/tiny_hybrid_pd.yaml",
        also=("PD005", "PD020", "PD040", "PD041", "PD050"),
    ),
    Sides(
        "PD030",
        ("prefill.args.attention-backend=FLASHINFER", "decode.args.attention-backend=TRITON_ATTN"),
        ("prefill.args.attention-backend=FLASHINFER", "decode.args.attention-config={backend: flashinfer}"),
        "prefill FLASHINFER, decode TRITON_ATTN",
    ),
    Sides(
        "PD030",
        ('decode.args.attention-config={"backend": "FLASHINFER"}',),
        ("common.args.attention-backend=FLASHINFER",),
        "prefill vLLM's choice, decode FLASHINFER",
        severity="warning",
    ),
    Sides(
        "PD031",
        ("decode.env.VLLM_KV_CACHE_LAYOUT=NHD",),
        ("prefill.env.VLLM_KV_CACHE_LAYOUT=HND", "decode.env.VLLM_KV_CACHE_LAYOUT=LBHNC"),
        "KV layout: prefill HND, decode NHD",
        also=("PD022", "PD071"),
    ),
    Sides(
        "PD031",
        ("common.env.VLLM_KV_CACHE_LAYOUT=NHD",),
        ("common.env.VLLM_KV_CACHE_LAYOUT=NHD", "prefill.topology=TEP8"),
        "TP4 beside TP8 splits KV by heads",
    ),
    Sides(
        "PD032",
        (*DENSE, "prefill.topology=TP16", "decode.topology=TP8"),
        (*DENSE, "prefill.topology=TP8", "decode.topology=TP4"),
        "TP16 of prefill replicates the 8 KV heads",
        also=("PD004", "PD055"),
    ),
    Sides(
        "PD032",
        ("model.facts=qwen3.5-397b", "prefill.topology=TP4", "decode.topology=TP6"),
        ("model.facts=qwen3.5-397b", "prefill.topology=TP4", "decode.topology=TP3"),  # PD003 says that TP3 cannot be
        "neither of TP4 and TP6 is a multiple",
        also=("PD001", "PD003", "PD005", "PD007", "PD069"),
    ),
    Sides(
        "PD033",
        ("decode.args.quantization=fp8",),
        ("common.args.quantization=fp8",),
        "`quantization`: prefill says nothing, decode fp8",
        also=("PD062",),
    ),
    Sides("PD034", ("model.revision=",), ("model.revision=", "model.path=/models/q"), "newest", severity="warning"),
    Sides("PD034", ("model.revision=main",), (), "is fetched at main", severity="warning"),
    Sides(
        "PD035",
        ("decode.max_num_seqs=4", "workload.osl=8192"),
        ("decode.max_num_seqs=4", "workload.osl=8192", "common.kv_transfer={extra: {kv_lease_duration: 130}}"),
        "waits at least 123 s, prefill keeps its blocks for 30 s (vLLM's default lease), unless decode renews that",
        severity="warning",
        also=("PD006",),
    ),
    Sides(
        "PD035",
        (
            "engine.vllm=0.21.0",
            "decode.max_num_seqs=4",
            "workload.osl=8192",
            "prefill.env.VLLM_NIXL_ABORT_REQUEST_TIMEOUT=60",
        ),
        ("engine.vllm=0.21.0", "decode.max_num_seqs=4", "workload.osl=8192"),
        "for 60 s (VLLM_NIXL_ABORT_REQUEST_TIMEOUT)",
        also=("PD006", "PD022", "PD025", "PD028"),
    ),
    Sides(
        "PD036",
        ("common.kv_transfer={extra: {enable_cross_layers_blocks: true}}",),
        (*DENSE, "common.kv_transfer={extra: {enable_cross_layers_blocks: true}}"),
        "has no effect on a hybrid model",
        severity="warning",
    ),
    Sides(
        "PD036",
        (*DENSE, "engine.vllm=0.29.0", "common.kv_transfer={extra: {enable_cross_layers_blocks: 'True'}}"),
        (*DENSE, "engine.vllm=0.28.0", "common.kv_transfer={extra: {enable_cross_layers_blocks: 'True'}}"),
        "is not read by vLLM 0.29.0",
        severity="warning",
        also=("PD071",),
    ),
    Sides(
        "PD037",
        ("common.kv_transfer={extra: {enforce_handshake_compat: false}}",),
        ("common.kv_transfer={extra: {enforce_handshake_compat: true}}",),
        "compatibility hash is switched off",
        severity="warning",
    ),
]
