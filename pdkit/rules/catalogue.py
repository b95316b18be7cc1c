"""All rules, by code, and how they are run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pdkit.errors import Finding
from pdkit.plan.plan import Plan
from pdkit.recipe.schema import ROLES
from pdkit.recipe.source import Source
from pdkit.rules import (
    accepting,
    capacity,
    evaluation,
    flags,
    flags_env,
    flags_json,
    flags_pairs,
    flags_tables,
    free,
    graphs,
    measurement,
    network,
    pairing,
    pairing_connector,
    pairing_hybrid,
    pairing_layout,
    pairing_lease,
    placement,
    ports,
    prefix_caching,
    serving,
    start,
    steps,
)
from pdkit.rules.rule import Case, Rule

RULES: tuple[Rule, ...] = (
    pairing.block_sizes_equal,
    pairing.block_holds_state,
    placement.endpoint_can_be_placed,
    placement.fits_rack,
    capacity.fits_memory,
    capacity.seats_cover_concurrency,
    capacity.kv_holds_seats,
    graphs.graphs_cover_batch,
    capacity.length_fits,
    pairing.mtp_equal,
    pairing.kv_dtype_equal,
    pairing.state_dtypes_equal,
    pairing_hybrid.conv_layout,
    pairing_connector.connector_equal,
    pairing.model_equal,
    flags.flags_are_known,
    ports.ports_are_free,
    pairing.dtype_equal,
    pairing_connector.load_failure_policy,
    steps.step_holds_block,
    capacity.gate_fits_length,
    flags.flag_values_fit,
    pairing.mtp_has_a_head,
    pairing_connector.connector_hands_over,
    pairing_hybrid.connector_carries_states,
    pairing_hybrid.hybrid_manager_on,
    pairing_connector.kv_role_is_told,
    pairing_hybrid.async_scheduling_is_safe,
    pairing_hybrid.prefix_caching_beside_mtp,
    pairing_layout.attention_backend_equal,
    pairing_layout.kv_layout_equal,
    pairing_layout.tp_sizes_fit,
    pairing_layout.cache_shape_equal,
    pairing_layout.revision_is_pinned,
    pairing_lease.lease_outlasts_the_queue,
    pairing_connector.cross_layer_blocks_work,
    pairing_connector.handshake_is_checked,
    prefix_caching.block_fits_a_request,
    prefix_caching.prefix_reaches_a_state,
    serving.tool_parser_fits,
    serving.reasoning_parser_fits,
    serving.budget_binds,
    serving.untrusted_input_has_no_power,
    serving.unified_memory_has_room,
    capacity.state_blocks_hold_seats,
    capacity.prefill_limit_is_named,
    graphs.graphs_have_room,
    steps.step_holds_a_batch,
    ports.ports_are_not_scanned,
    placement.ranks_start_as_planned,
    placement.tp_stays_inside_nvlink,
    placement.job_lies_in_one_domain,
    placement.gpus_are_used,
    network.kv_has_a_fast_way,
    network.ranks_reach_each_other,
    network.transfers_have_few_descriptors,
    start.timeouts_outlast_the_start,
    start.image_fits_the_cpu,
    start.image_is_one_build,
    start.gate_files_exist,
    start.caches_are_not_shared,
    free.free_flags_are_planned,
    free.variables_agree_with_the_plan,
    free.flags_are_written_once,
    flags_env.variables_are_read,
    flags_json.json_keys_fit,
    flags_pairs.flags_fit_together,
    flags_pairs.flags_have_an_effect,
    flags_tables.versions_are_known,
    flags_tables.probe_is_of_this_recipe,
    flags.frontend_flags_fit,
    evaluation.thinking_has_room,
    evaluation.thinking_is_asked_by_chat,
    evaluation.gate_can_fail,
    evaluation.enough_questions,
    evaluation.gate_is_crowded,
    measurement.range_ratio_is_the_tools,
    measurement.enough_prompts,
    measurement.tokens_are_streamed,
    measurement.prompts_are_unique,
    measurement.acceptance_is_judged,
    measurement.gpus_are_counted,
    accepting.ignores_are_needed,  # the last: it looks at what the others have found
)
NEVER_ACCEPTED = frozenset(
    f"PD{number:03d}"
    for number in (*range(1, 5), *range(9, 16), 17, 18, 20, 23, 25, 26, 31, 32, 33, 50, 54, 56, 62, 65, 67, 99)
)
"""Where one of these is an error, nothing starts, no request succeeds, or answers are wrong: no reason helps."""
ACCEPTABLE = {rule.code: rule.code not in NEVER_ACCEPTED for rule in RULES}


def check(plan: Plan, source: Source) -> list[Finding]:
    """Run every rule over a plan; what the recipe ignores, with its reason, comes back as info where it may."""
    reasons = {entry.code: entry.reason for entry in plan.recipe.ignore}
    found: list[Finding] = []
    for rule in RULES:
        errors = frozenset(one.code for one in found if one.severity == "error")
        found += rule.findings(Case(plan, source, ACCEPTABLE, frozenset(one.code for one in found), errors))
    return [_accept(one, reasons[one.code]) if one.code in reasons else one for one in joined(found)]


def joined(found: Iterable[Finding]) -> list[Finding]:
    """What one setting under `common` does to both roles is one finding, which names both."""
    together: dict[Finding, list[str]] = {}
    for one in found:
        role, colon, rest = one.message.partition(": ")
        own = bool(colon) and role in ROLES
        together.setdefault(replace(one, message=rest) if own else one, []).extend([role] if own else [])
    return [
        replace(one, message=f"{' and '.join(dict.fromkeys(roles))}: {one.message}") if roles else one
        for one, roles in together.items()
    ]


def _accept(finding: Finding, reason: str) -> Finding:
    if finding.severity == "error" and finding.code in NEVER_ACCEPTED:
        return finding
    return replace(finding, severity="info", message=f"{finding.message} [accepted: {reason}]")
