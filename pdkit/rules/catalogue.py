"""All rules, by code, and how they are run."""

from __future__ import annotations

from dataclasses import replace

from pdkit.errors import Finding
from pdkit.plan.plan import Plan
from pdkit.recipe.source import Source
from pdkit.rules import capacity, flags, graphs, pairing, placement, ports
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
    pairing.ssm_dtype_equal,
    pairing.conv_layout,
    pairing.connector_equal,
    pairing.model_equal,
    flags.flags_are_known,
    ports.ports_are_free,
    pairing.dtype_equal,
    pairing.load_failure_policy,
    capacity.step_holds_block,
    capacity.gate_fits_length,
    flags.flag_values_fit,
    pairing.mtp_has_a_head,
)


def check(plan: Plan, source: Source) -> list[Finding]:
    """Run every rule over a plan; what the recipe ignores, with its reason, comes back as info."""
    accepted = {entry.code: entry.reason for entry in plan.recipe.ignore}
    found = [finding for rule in RULES for finding in rule.findings(Case(plan, source))]
    unique = list(dict.fromkeys(found))
    return [_accept(finding, accepted[finding.code]) if finding.code in accepted else finding for finding in unique]


def _accept(finding: Finding, reason: str) -> Finding:
    return replace(finding, severity="info", message=f"{finding.message} [accepted: {reason}]")
