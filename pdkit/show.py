"""What a person sees of a plan and its findings in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from pdkit.errors import Finding
from pdkit.plan.cost import Cost, expected_cost
from pdkit.plan.decision import Decision
from pdkit.plan.plan import Plan
from pdkit.plan.role import RolePlan
from pdkit.rules.summary import CodeCount

STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
BAR = 40


def show_findings(console: Console, findings: Iterable[Finding]) -> None:
    """One finding per block: place, severity, code, message, fix."""
    for finding in findings:
        line = Text.assemble(
            f"{finding.at}: ", (f"{finding.severity} {finding.code}", STYLES[finding.severity]), f": {finding.message}"
        )
        console.print(line, soft_wrap=True)
        if finding.fix:
            console.print(Text(f"    fix: {finding.fix}", style="dim"), soft_wrap=True)


def show_counts(console: Console, counts: Iterable[CodeCount]) -> None:
    """How often each code was found, one line each."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    for name in ("code", "errors", "warnings", "notes", "accepted", "files", "what must hold"):
        table.add_column(name, header_style="dim", justify="left" if name in ("code", "what must hold") else "right")
    for one in counts:
        numbers = (one.errors, one.warnings, one.notes, one.accepted, one.recipes)
        table.add_row(one.code, *(str(number) if number else "" for number in numbers), one.title)
    console.print(table)


def show_plan(console: Console, plan: Plan, findings: Sequence[Finding], startup_minutes: float | None = None) -> None:
    """The whole plan as one picture; `startup_minutes` replaces the estimate in its cost."""
    roles = list(plan.roles.values())
    title = Text.assemble((plan.recipe.name, "bold"), f"  {plan.model.name} on {plan.hardware.name}")
    head = f"{plan.gpus} GPUs on {plan.nodes} nodes, {_load(plan)}"
    idle = plan.gpus_allocated - plan.gpus
    head += f"; {idle} GPUs of these nodes stay idle" if idle else ""
    parts: list[RenderableType] = [
        Text(head),
        Text(""),
        _role_table(roles),
        Text(""),
        _block_line(plan),
        Text(""),
    ]
    parts += [_memory_bar(role) for role in roles] + [Text(""), _placement(plan), Text("")]
    parts += _cost(expected_cost(plan, startup_minutes), plan)
    console.print(Panel(Group(*parts), title=title, title_align="left", border_style="blue", expand=False))
    show_findings(console, findings)
    if not findings:
        console.print(Text("no findings", style="green"))


def _load(plan: Plan) -> str:
    load = plan.recipe.workload
    return f"ISL {load.isl} / OSL {load.osl}, concurrency {', '.join(map(str, load.concurrency))}"


def _role_table(roles: list[RolePlan]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("", style="dim")
    for role in roles:
        table.add_column(Text(f"{role.role}  {role.endpoints} x {role.topology}", style="bold"))
    if len(roles) == 1:
        table.add_column("why", style="dim")
    for label, cells, why in _rows(roles):
        table.add_row(label, *cells, *([why] if len(roles) == 1 else []))
    return table


def _rows(roles: list[RolePlan]) -> list[tuple[str, list[RenderableType], str]]:
    def decided(label: str, name: str) -> tuple[str, list[RenderableType], str]:
        decisions = [getattr(role.sizing, name) for role in roles]
        return label, [_value(one) for one in decisions], decisions[0].reason

    def plain(label: str, texts: list[str], why: str = "") -> tuple[str, list[RenderableType], str]:
        return label, [Text(text) for text in texts], why

    graphs = [
        f"{len(role.sizing.capture_sizes(role.mtp))} graphs, {role.sizing.cudagraph_mode.value}"
        if role.sizing.max_cudagraph_capture_size.value
        else "none"
        for role in roles
    ]
    return [
        plain(
            "GPUs",
            [f"{role.gpus} ({role.ranks * role.endpoints} ranks x {role.topology.gpus_per_rank})" for role in roles],
        ),
        plain("MTP", [str(role.mtp) if role.mtp else "off" for role in roles]),
        decided("max-model-len", "max_model_len"),
        decided("max-num-seqs", "max_num_seqs"),
        decided("max-num-batched-tokens", "max_num_batched_tokens"),
        decided("max-cudagraph-capture-size", "max_cudagraph_capture_size"),
        plain("CUDA graphs", graphs),
        plain("KV / SSM dtype", [f"{role.kv_cache_dtype.value} / {role.ssm_dtype.value}" for role in roles]),
        plain("blocks per request", [_request(role) for role in roles]),
        plain("requests that fit", [_capacity(role) for role in roles]),
        plain("bound by", [role.max_concurrency.reason if role.max_concurrency else "unknown" for role in roles]),
    ]


def _value(decision: Decision[int]) -> Text:
    mark = {"recipe": " (recipe)", "pdkit": "", "vllm": " (vLLM's default)"}[decision.by]
    return Text.assemble(str(decision.value), (mark, "magenta"))


def _request(role: RolePlan) -> str:
    length = role.sizing.max_model_len.value
    layout = role.layout
    size = f"{layout.block_bytes / 2**20:.2f} MiB = {layout.request_mib(length):.1f} MiB per GPU"
    return f"{layout.blocks_per_request(length)} x {size}"


def _capacity(role: RolePlan) -> str:
    limit = role.max_concurrency
    if limit is None:
        return "unknown"
    return f"{limit.per_rank:.2f} per rank, {limit.total:.2f} in all ({limit.seats} seats)"


def _block_line(plan: Plan) -> Text:
    used = {role: one.block_size.value for role, one in plan.roles.items()}
    agree = len(set(used.values())) == 1
    sizes = str(next(iter(used.values()))) if agree else ", ".join(f"{role} {size}" for role, size in used.items())
    mark = ("agreed" if len(used) > 1 else "natural", "bold green") if agree else ("DIFFERENT", "bold red")
    return Text.assemble(("block size  ", "dim"), (sizes, "bold"), " ", mark, f"  {plan.block_size_reason}")


def _memory_bar(role: RolePlan) -> Text:
    budget = role.memory
    label = Text(f"{role.role:8s}", style="dim")
    if budget is None:
        return Text.assemble(label, "memory unknown: the facts do not give the size of the weights")
    parts = [
        ("weights", budget.weights_gib, "blue"),
        ("overheads", budget.non_torch_gib + budget.peak_activation_gib, "yellow"),
        ("graphs", budget.cudagraph_estimate_gib, "magenta"),
        ("KV", max(0.0, budget.kv_cache_gib), "green"),
    ]
    total = max(budget.total_gib, sum(size for _, size, _ in parts))
    bar = Text.assemble(label)
    for _, size, color in parts:
        bar.append("█" * round(BAR * size / total), style=color)
    bar.append("·" * max(0, BAR + len(label) - len(bar)), style="dim")
    bar.append("  " + ", ".join(f"{name} {size:.1f}" for name, size, _ in parts))
    band = f" ± {budget.error_gib}" if budget.error_gib else ""
    bar.append(f" of {budget.total_gib} GiB  ")
    bar.append(f"{budget.source}{band}", style="green" if budget.source == "measured" else "yellow")
    return bar


def _placement(plan: Plan) -> RenderableType:
    if plan.placement_fault:
        return Text(plan.placement_fault, style="red")
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    for name in ("node", "GPUs", "process", "ranks", "listens on"):
        table.add_column(name, header_style="dim")
    for process in plan.placement:
        listens = _ranges(
            port.port for port in plan.ports if port.node == process.node and port.owner.startswith(process.name + " ")
        )
        others = {port.owner: port.port for port in plan.ports if port.node == process.node}
        extra = [f"{owner} {port}" for owner, port in others.items() if owner.startswith(("frontend", "etcd", "nats"))]
        first = process is next(one for one in plan.placement if one.node == process.node)
        table.add_row(
            str(process.node),
            ",".join(map(str, process.gpus)),
            process.name + (" headless" if process.headless else ""),
            ",".join(map(str, process.ranks)),
            ", ".join([*listens, *(extra if first else [])]),
        )
    return table


def _cost(cost: Cost, plan: Plan) -> list[RenderableType]:
    """What the job will take, and what one job per point would."""
    unit = "GPU-hours" if plan.hardware.device == "cuda" else "slot-hours"
    points = sum(cost.points_minutes)
    lines: list[RenderableType] = [
        Text.assemble(
            ("cost  ", "dim"),
            (f"{cost.gpu_hours:.1f} {unit}", "bold"),
            f" expected: {cost.gpus} x {cost.minutes:.0f} min "
            f"(start-up {cost.startup_minutes:.1f}, gate {cost.gate_minutes:.1f}, points {points:.1f}); "
            f"one job per point and accuracy apart: {cost.apart_gpu_hours:.1f}",
        ),
        Text(f"      start-up {cost.startup_source}", style="dim"),
        Text(f"      speeds {cost.speed_source}", style="dim"),
    ]
    if not cost.fits:
        limit = plan.recipe.cluster.time_limit
        lines.append(Text(f"      longer than cluster.time_limit {limit}: a resumed job goes on", style="yellow"))
    return lines


def _ranges(ports: Iterable[int]) -> list[str]:
    runs: list[list[int]] = []
    for port in sorted(ports):
        if runs and port == runs[-1][-1] + 1:
            runs[-1].append(port)
        else:
            runs.append([port])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
