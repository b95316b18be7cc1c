"""The report: one page that needs nothing else, that hides no failure, and whose bytes do not change."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest

from pdkit.errors import UsageError
from pdkit.results.drawing import frontier_of
from pdkit.results.evidence import block_sizes, block_verdict, capacities, notes, stands_on_another_gate, troubles
from pdkit.results.figures import MARKERS, SERIES, colour, glyph, log_ticks, marker
from pdkit.results.imported import ImportedPoint
from pdkit.results.report import build_report
from pdkit.results.runs import configurations, read_run

PUBLISHED = (
    ImportedPoint(label="another <rack>", tok_s_gpu=2000.0, tok_s_user=90.0, concurrency=64),
    ImportedPoint(label="another <rack>", tok_s_gpu=900.0, tok_s_user=140.0),
)


def believed(_run: Path) -> dict[int, str]:
    """The audit of invented runs, whose figures stand on nothing."""
    return {}


@pytest.fixture(scope="module")
def report(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_report(runs, PUBLISHED, tmp_path_factory.mktemp("report") / "report.html", believed)


@pytest.fixture(scope="module")
def page(report: Path) -> str:
    return report.read_text(encoding="utf-8")


class Outline(HTMLParser):
    """Tags that must be closed, ids, and everything that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids += [values["id"] or ""] if "id" in values else []
        self.fetched += [str(values[name]) for name in ("src", "href", "xlink:href") if values.get(name)]
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)
        if tag in ("script", "link", "img", "iframe"):
            self.fetched.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> Outline:
    outline = Outline()
    outline.feed(page)
    return outline


def test_the_page_is_whole_and_needs_nothing_else(page: str) -> None:
    outline = read(page)
    assert outline.open == []
    assert [each for each in outline.fetched if not each.startswith("#")] == []
    assert "url(http" not in page
    assert "@import" not in page
    assert len(outline.ids) == len(set(outline.ids))


def test_references_inside_the_figures_lead_somewhere(page: str) -> None:
    targets = set(re.findall(r"url\(#([^)]+)\)", page)) | set(re.findall(r'xlink:href="#([^"]+)"', page))
    assert targets
    assert targets <= set(read(page).ids)


def test_the_same_runs_give_the_same_bytes(runs: list[Path], report: Path, tmp_path: Path) -> None:
    again = build_report(runs, PUBLISHED, tmp_path / "report.html", believed)
    for name in ("report.html", "report.csv", "report.json", "report.png", "report-latency.png"):
        assert again.with_name(name).read_bytes() == report.with_name(name).read_bytes(), name


def test_figures_follow_the_colours_of_the_page(page: str) -> None:
    assert page.count("<svg") == 3
    assert "prefers-color-scheme: dark" in page
    figures = "".join(re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL))
    assert "var(--s0)" in figures
    assert re.findall(r"(?:fill|stroke): #[0-9a-f]{6}", figures) == []


def test_failures_stand_at_the_top(page: str) -> None:
    top = page[: page.index("<h2>")]
    assert "qwen38-1xtep8-1xtp4dp4 failed at the gate, so nothing was measured" in top
    assert "accuracy 0.45 % is below the floor 94.00 %" in top
    assert "qwen38-1xtp2dp4-1xtep8 stopped before the gate, so nothing was measured" in top
    assert "seen missing decode0" in top
    assert "qwen38-4xtp2dp4-1xtp4dp4 has an invalid point at concurrency 1024" in top


def test_an_invalid_point_is_in_the_table_with_its_reason_and_in_no_figure(page: str) -> None:
    assert "2 of 8192 requests failed" in page
    assert "qwen38-4xtp2dp4-1xtp4dp4, concurrency 512:" in page  # the hover text of a valid neighbour
    assert "qwen38-4xtp2dp4-1xtp4dp4, concurrency 1024:" not in page


def test_what_others_wrote_is_escaped(page: str) -> None:
    assert "another <rack>" not in page
    assert "another &lt;rack&gt;" in page


def test_the_csv_has_every_point_with_its_divisors(report: Path) -> None:
    rows = list(csv.DictReader(report.with_suffix(".csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 22
    (invalid,) = (row for row in rows if row["valid"] == "False")
    assert (invalid["concurrency"], invalid["on_frontier"]) == ("1024", "False")
    first = rows[0]
    assert (first["gpus"], first["gpus_prefill"], first["gpus_decode"]) == ("16", "8", "8")
    assert float(first["tok_s_user_p90"]) == pytest.approx(1000 / float(first["tpot_p90_ms"]))


def test_the_json_names_the_frontier(report: Path, runs: list[Path]) -> None:
    data = json.loads(report.with_suffix(".json").read_text(encoding="utf-8"))
    found = {(each["run"], each["concurrency"]) for each in data["frontier"]}
    named = configurations([read_run(folder) for folder in runs])
    assert found == {(each.label, point.concurrency) for each, point in frontier_of(named)}
    assert ("qwen38-1xtep8-1xtep8", 1) in found
    assert ("qwen38-4xtp2dp4-1xtp4dp4", 1024) not in found
    assert len(data["imported"]) == 2


def test_pictures_are_png(report: Path) -> None:
    for name in ("report.png", "report-latency.png"):
        assert report.with_name(name).read_bytes().startswith(b"\x89PNG")


def test_a_run_without_points_gives_a_page_and_no_picture(runs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    build_report(runs[:1], (), out, believed)
    build_report(runs[5:], (), out, believed)
    page = out.read_text(encoding="utf-8")
    assert "There is no valid point to draw." in page
    assert "Every point was measured" not in page
    assert not out.with_suffix(".png").exists()
    read(page)


def test_runs_that_do_not_compare_are_told(sample: ModuleType, runs: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(runs[0], other)
    plan = json.loads((other / "plan.json").read_text())
    plan["workload"]["isl"] = 1024
    (other / "plan.json").write_text(json.dumps(plan))
    page = build_report([runs[0], other], (), tmp_path / "report.html", believed).read_text(encoding="utf-8")
    assert "These runs have different workloads" in page
    assert runs[0].name in page


def test_a_run_cannot_be_named_twice(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="named 2 times") as caught:
        build_report([runs[0], runs[0]], (), tmp_path / "report.html", believed)
    assert caught.value.at == str(runs[0].resolve())


def test_runs_of_one_name_in_two_places_go_by_their_paths(runs: list[Path], tmp_path: Path) -> None:
    other = tmp_path / runs[0].name
    shutil.copytree(runs[0], other)
    named = configurations([read_run(folder) for folder in (runs[0], other, runs[1])])
    assert [each.label for each in named[:2]] == [str(runs[0].resolve()), str(other.resolve())]
    assert "/" not in named[2].label


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("gate.json", '{"passed": true}', "words: Field required"),
        ("ready.json", "{", "Invalid JSON"),
        ("gate.json", b"\xff\xfe", "Invalid JSON"),
        ("plan.json", b"\xff\xfe", "byte 0 is not UTF-8"),
        ("plan.json", "[]", "must be a JSON object"),
        ("plan.json", '{"schema":\n', "not JSON"),
    ],
)
def test_a_broken_file_of_a_run_is_told(
    runs: list[Path], tmp_path: Path, name: str, text: str | bytes, words: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs[0], folder)
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=words) as caught:
        build_report([folder], (), tmp_path / "report.html", believed)
    assert name in str(caught.value.at)


def _report(*words: str | Path) -> tuple[int, str]:
    argv = [sys.executable, "-m", "pdkit", "report", *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_one_run_that_cannot_be_read_does_not_hide_the_others(runs: list[Path], tmp_path: Path) -> None:
    good, bad, gone, other, page = (tmp_path / name for name in ("good", "bad", "gone", "imported", "report.html"))
    for folder in (good, bad, gone):
        shutil.copytree(runs[0], folder)
    (bad / "gate.json").write_text("{")
    (gone / "gate.json").unlink()
    (gone / "gate.json").mkdir()
    other.mkdir()
    code, said = _report(*sorted(tmp_path.iterdir()), "-o", page)
    assert code == 7
    assert said.splitlines()[0] == f"{other}: not a run folder, left out"
    assert f"{bad / 'gate.json'}: Invalid JSON" in said
    assert f"{gone / 'gate.json'}: this cannot be read: Is a directory" in said
    assert said.endswith("2 of 3 runs cannot be read: the page shows the others\n")
    [drawn] = json.loads(page.with_suffix(".json").read_text())["runs"]
    assert len(drawn["points"]) == 6
    for folder in (bad, gone):
        assert f"{folder / 'gate.json'} cannot be read and is left out." in page.read_text()


def test_without_any_run_that_can_be_read_there_is_no_page(runs: list[Path], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "plan.json").write_text("{")
    for folder, words in (("bad", "not JSON"), ("bad/..", "not a run folder"), ("typo", "no such run folder")):
        code, said = _report(tmp_path / folder, "-o", page)
        assert (code, words in said, page.exists()) == (2, True, False), said
    code, said = _report(runs[0], tmp_path / "typo", "-o", page)
    assert (code, "no such run folder" in said, page.exists()) == (2, True, False), "a typing error is no broken run"


def test_a_note_of_some_points_names_them(runs: list[Path]) -> None:
    first, second = (read_run(folder) for folder in runs[:2])
    points = tuple(
        point.model_copy(
            update={"notes": ("all", *((f"{point.concurrency} % x",) if point.concurrency in (1, 8) else ()))}
        )
        for point in first.points
    )
    others = tuple(point.model_copy(update={"notes": ("all",)}) for point in second.points)
    one, two = (replace(run, points=changed) for run, changed in ((first, points), (second, others)))
    named = configurations([one, two])
    assert notes(named) == [("all", []), ("1 to 8 % x", [f"{named[0].label} at concurrency 1, 8"])]
    without = replace(two, points=tuple(point.model_copy(update={"notes": ()}) for point in others))
    assert notes(configurations([one, without]))[0] == ("all", [named[0].label])


@pytest.mark.parametrize(("low", "high"), [(5.9, 13.0), (0.21, 0.24), (60.0, 700.0), (1.0, 90_000.0)])
def test_a_latency_axis_can_be_read(low: float, high: float) -> None:
    ticks = log_ticks(low, high)
    assert 3 <= len(ticks) <= 16
    assert all(low <= tick <= high for tick in ticks)


def test_a_folder_that_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such run folder"):
        build_report([tmp_path / "none"], (), tmp_path / "report.html", believed)
    with pytest.raises(UsageError, match=r"no plan\.json"):
        build_report([tmp_path], (), tmp_path / "report.html", believed)
    with pytest.raises(UsageError, match="no run to report"):
        build_report([], (), tmp_path / "report.html", believed)


def test_block_sizes_are_judged_by_what_the_engines_report(runs: list[Path]) -> None:
    verdicts = [block_verdict(block_sizes(read_run(folder))) for folder in runs]
    assert verdicts == [(True, "equal")] * 5 + [(False, "engines differ"), (None, "not reported")]


def test_the_plan_is_laid_beside_what_was_measured(runs: list[Path]) -> None:
    prefill, decode = capacities(read_run(runs[1]))
    assert (prefill.role, decode.role) == ("prefill", "decode")
    for row in (prefill, decode):
        assert row.kv_cache_gib.difference == pytest.approx(-0.0085, abs=0.002)
        assert row.max_concurrency.difference == pytest.approx(-0.01)
    (unknown, _) = capacities(read_run(runs[6]))
    assert (unknown.kv_cache_gib.measured, unknown.kv_cache_gib.difference) == (None, None)


def test_what_the_rules_found_and_what_was_accepted_is_told(runs: list[Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs[0], run)
    plan = json.loads((run / "plan.json").read_text())
    accepted = {
        "code": "PD006",
        "severity": "info",
        "message": "x [accepted: the <queue> is meant]",
        "at": "r.yaml:1:2",
    }
    other = {**accepted, "code": "PD021", "severity": "warning", "message": "too long"}
    plan["findings"] = [accepted, other, {**other, "code": "PD069", "severity": "info"}]
    (run / "plan.json").write_text(json.dumps(plan))
    text = build_report([run], [], tmp_path / "report.html", believed).read_text()
    row = text.partition(">PD006<")[2].partition("</tr>")[0]
    assert ">accepted<" in row
    assert "[accepted: the &lt;queue&gt; is meant]" in row
    assert "r.yaml:1:2" in row
    assert ">info<" in text.partition(">PD069<")[2].partition("</tr>")[0]
    assert ">warning<" in text.partition(">PD021<")[2].partition("</tr>")[0]


def test_a_point_of_an_earlier_gate_is_told(runs: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs[0], folder)
    assert stands_on_another_gate(read_run(folder)) == []
    gate = json.loads((folder / "gate.json").read_text())
    gate["gate_digest"] = "sha256:" + "0" * 64
    (folder / "gate.json").write_text(json.dumps(gate))
    assert stands_on_another_gate(read_run(folder)) == [1, 2, 4, 8, 16, 32]
    page = build_report([folder], (), tmp_path / "report.html", believed).read_text(encoding="utf-8")
    assert "measured after an earlier gate of the same lock: concurrency 1, 2, 4, 8, 16, 32" in page


def test_a_point_that_the_audit_doubts_is_in_the_table_and_in_no_figure(runs: list[Path], tmp_path: Path) -> None:
    doubted = {8: "its trace cannot be read", 999: "not there"}
    page = build_report(runs[:1], (), tmp_path / "report.html", lambda _run: doubted).read_text(encoding="utf-8")
    assert "its trace cannot be read" in page
    assert f"{runs[0].name.rsplit('-', 2)[0]}, concurrency 8:" not in page
    lines = (tmp_path / "report.csv").read_text(encoding="utf-8").splitlines()
    rows = {row["concurrency"]: row for row in csv.DictReader(lines)}
    assert (rows["8"]["valid"], rows["16"]["valid"]) == ("False", "True")
    build_report(runs[:1], (), tmp_path / "report.html", lambda _run: dict.fromkeys((1, 2, 4, 8, 16, 32), "no gate"))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "There is no valid point to draw." in page
    assert "answers had passed" not in page


def test_a_point_under_another_name_is_refused(runs: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs[0], folder)
    shutil.copyfile(folder / "points" / "c0008.json", folder / "points" / "c0009.json")
    with pytest.raises(UsageError, match="holds concurrency 8"):
        build_report([folder], (), tmp_path / "report.html", believed)


def test_a_sweep_that_stopped_early_is_told(runs: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs[0], folder)
    (folder / "points" / "c0032.json").unlink()
    (folder / "result.json").write_text('{"message": "an engine restarted"}')
    (trouble,) = troubles(read_run(folder))
    assert trouble.stage == "was not measured at concurrency 32"
    assert trouble.words == "an engine restarted"
    assert trouble.partial


def test_a_run_that_was_only_rendered_has_not_started(runs: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "rendered"
    folder.mkdir()
    plan = json.loads((runs[0] / "plan.json").read_text(encoding="utf-8"))
    (folder / "plan.json").write_text(json.dumps({**plan, "model": "another"}))
    assert [trouble.stage for trouble in troubles(read_run(folder))] == ["has not started"]
    page = build_report([runs[0], folder], (), tmp_path / "report.html", believed).read_text(encoding="utf-8")
    assert "do not compare" not in page
    (folder / "events.jsonl").touch()
    assert [trouble.stage for trouble in troubles(read_run(folder))] == [
        "stopped before the gate, so nothing was measured"
    ]


def test_no_two_of_many_configurations_look_alike() -> None:
    styles = range(len(SERIES) * len(MARKERS))
    assert len({(colour(style), marker(style)) for style in styles}) == len(styles)
    assert len({(colour(style), glyph(style)) for style in styles}) == len(styles)
