"""The commands that need no cluster, as a person calls them: what they print, where, and how they end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from pdkit import __main__ as entry
from pdkit import __version__
from pdkit.cli import app, main
from pdkit.commands import recipe_files
from pdkit.errors import InterruptedRunError
from pdkit.paths import shipped
from pdkit.recipe.yaml_marks import parse

RECIPES = shipped("recipes")
FRONT_DOOR = str(RECIPES / "qwen38_tep8.yaml")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("check", "x.yaml")`: (exit code, output, errors)."""

    def command(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pdkit", *words])
        with pytest.raises(SystemExit) as end:
            main()
        out = capsys.readouterr()
        return int(end.value.code or 0), out.out, out.err

    return command


def _process(*words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "pdkit.cli", *words]
    return subprocess.run(argv, capture_output=True, check=False, timeout=60, **options)


def test_check_of_one_recipe(run: Run) -> None:
    assert run("check", FRONT_DOOR) == (0, "1 recipe checked: 0 errors, 0 warnings\n", "")


def test_check_of_folders_leaves_out_bases(run: Run) -> None:
    code, out, err = run("check", str(RECIPES / "qwen38" / "pairs"), FRONT_DOOR)
    assert (code, out, err) == (0, "13 recipes checked: 0 errors, 0 warnings\n", "")


def test_check_prints_place_severity_code_message_and_fix(run: Run) -> None:
    code, out, err = run("check", FRONT_DOOR, "--set", "decode.max_num_seqs=12")
    assert (code, err) == (1, "")
    finding, fix, total = out.splitlines()
    place = re.escape(str(RECIPES / "qwen38_tep8.yaml"))
    assert re.fullmatch(rf"{place}:15:20: error PD006: concurrency 16 exceeds the 12 seats .*", finding)
    assert fix == "    fix: raise decode.max_num_seqs or lower the concurrency"
    assert total == "1 recipe checked: 1 error, 0 warnings"


def test_check_as_json(run: Run) -> None:
    code, out, _ = run("check", "--json", FRONT_DOOR, "--set", "decode.max_num_seqs=12")
    data = json.loads(out)
    assert (code, data["schema"], data["recipes"]) == (1, 1, 1)
    assert [sorted(one) for one in data["findings"]] == [["at", "code", "fix", "message", "severity"]]


def test_an_unreadable_recipe_outweighs_a_rule_and_does_not_hide_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("schema: [\n")
    (tmp_path / "b.yaml").write_text(f"extends: {FRONT_DOOR}\ndecode: {{max_num_seqs: 12}}\n")
    code, out, _ = run("check", str(tmp_path))
    assert code == 2
    assert "error PD101" in out
    assert "error PD006" in out
    assert "2 recipes checked: 2 errors, 0 warnings" in out
    assert run("check", str(tmp_path / "b.yaml"))[0] == 1


def test_warnings_do_not_fail(run: Run) -> None:
    code, out, _ = run("check", FRONT_DOOR, "--set", "gate.max_tokens=20000")
    assert code == 0
    assert "warning PD021" in out
    assert out.endswith("1 recipe checked: 0 errors, 1 warning\n")


def test_a_fault_of_all_variants_is_told_once(run: Run, tmp_path: Path) -> None:
    recipe = tmp_path / "m.yaml"
    recipe.write_text(f"extends: {FRONT_DOOR}\nmatrix: {{workload.isl: [4096, 8192]}}\ngate: {{max_tokens: 20000}}\n")
    code, out, _ = run("check", str(recipe), "--set", "decode.max_num_seqs=12")
    assert code == 1
    assert out.count("PD006") == 1
    assert "2 recipes checked: 1 error" in out


def test_plan_is_a_picture(run: Run) -> None:
    code, out, err = run("plan", FRONT_DOOR)
    assert (code, err) == (0, "")
    for text in (
        "16 GPUs on 4 nodes",
        "prefill  1 x TP4DP2+EP",
        "decode  1 x TEP8",
        "2176 agreed",
        "natural sizes differ (prefill 2176, decode 1088)",
        "195.18 per rank",
        "KV 82.6 of 276.62 GiB",
        "measured",
        "decode0-1 headless",
        "frontend0 8000",
        "no findings",
    ):
        assert text in out, text
    assert max(map(len, out.splitlines())) <= 200


def test_plan_shows_what_is_wrong_and_fails(run: Run) -> None:
    code, out, err = run("plan", FRONT_DOOR, "--set", "common.block_size=natural")
    assert (code, err) == (1, "")
    assert "prefill 2176, decode 1088" in out
    assert "DIFFERENT" in out
    assert "error PD001" in out


def test_plan_of_a_matrix_is_a_list(run: Run, tmp_path: Path) -> None:
    recipe = tmp_path / "m.yaml"
    recipe.write_text(f"extends: {FRONT_DOOR}\nmatrix: {{decode.mtp: [0, 3]}}\n")
    code, out, _ = run("plan", "--json", str(recipe))
    assert code == 0
    assert [one["recipe"] for one in json.loads(out)] == ["qwen38-tep8-0", "qwen38-tep8-3"]
    assert json.loads(run("plan", "--json", FRONT_DOOR)[1])["recipe"] == "qwen38-tep8"


@pytest.mark.parametrize("recipe", ["qwen38/agg/prefill-tp1pp6.yaml", "qwen38/published/4xtp2dp4-1xtp4dp4-cc2560.yaml"])
def test_plan_of_other_shapes(run: Run, recipe: str) -> None:
    code, out, _ = run("plan", str(RECIPES / recipe))
    assert code == 0
    assert "GPUs on" in out


def test_render_says_where_and_what_next(run: Run, tmp_path: Path) -> None:
    code, out, err = run("render", FRONT_DOOR, "-o", str(tmp_path))
    [folder] = tmp_path.iterdir()
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"{folder}: job.sbatch for 4 nodes, {len(list((folder / 'steps').iterdir()))} steps, plan.json, lock.json",
        f"  submit: cd {folder} && sbatch job.sbatch",
    ]
    code, out, _ = run("render", FRONT_DOOR, "-o", str(tmp_path), "--json")
    [other] = json.loads(out)["folders"]
    assert Path(other).is_dir()
    assert Path(other).name[:-1] == folder.name[:-1]


def test_render_refuses_what_check_refuses(run: Run, tmp_path: Path) -> None:
    code, out, err = run("render", FRONT_DOOR, "-o", str(tmp_path), "--set", "common.block_size=natural")
    assert (code, out) == (1, "")
    assert "error PD001" in err
    assert list(tmp_path.iterdir()) == []


def test_render_where_nothing_can_be_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, out, err = run("render", FRONT_DOOR, "-o", str(tmp_path / "file"))
    assert (code, out) == (2, "")
    assert "cannot be written" in err
    assert "choose another folder with -o" in err


def test_the_schema_knows_every_key_of_the_shipped_recipes(run: Run) -> None:
    code, out, _ = run("schema")
    schema = json.loads(out)
    assert code == 0
    assert schema["$schema"].startswith("https://json-schema.org/")
    for path in recipe_files([RECIPES]):
        _known(parse(path.read_text(), str(path)).data, schema, schema, path.name)


def _known(data: Any, part: dict[str, Any], schema: dict[str, Any], where: str) -> None:
    """Every key of `data` stands in the schema's properties, at every depth that has some."""
    while "$ref" in part:
        part = schema["$defs"][part["$ref"].rsplit("/", 1)[-1]]
    if isinstance(data, dict) and "anyOf" in part:
        part = next((one for one in part["anyOf"] if "$ref" in one), part)
        if "$ref" in part:
            _known(data, part, schema, where)
        return
    if isinstance(data, dict) and "properties" in part:
        for key, value in data.items():
            assert key in part["properties"], f"{where}: {key}"
            _known(value, part["properties"][key], schema, where)


def test_every_setting_of_the_schema_has_a_meaning(run: Run) -> None:
    schema = json.loads(run("schema")[1])
    for name, part in [("Recipe", schema), *schema["$defs"].items()]:
        for key, field in part.get("properties", {}).items():
            assert field.get("description") or "$ref" in field, f"{name}.{key}"


OPTIONS = {
    "check": {"--set", "--format", "--explain", "--json"},
    "plan": {"--set", "--json", "--startup-minutes"},
    "render": {"--output", "-o", "--set", "--json"},
    "schema": set(),
}
"""Every knob lives in the recipe; another option here is a decision, not an accident."""


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_few_and_help_has_an_example(run: Run, name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    options = {text for one in command.params if one.param_type_name == "option" for text in one.opts}
    assert options == OPTIONS[name]
    assert all(one.help for one in command.params)
    for flag in ("-h", "--help"):
        code, out, _ = run(name, flag)
        assert code == 0
        assert f"Example: pdkit {name}" in out


def test_help_lists_exit_codes_and_version_is_one_line(run: Run) -> None:
    assert "8 interrupted" in " ".join(run("-h")[1].split())
    assert run("--version") == (0, f"pdkit {__version__}\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ("check",),
        ("chek", "x.yaml"),
        ("plan", FRONT_DOOR, FRONT_DOOR),
        ("plan", "--nope", FRONT_DOOR),
        ("render", FRONT_DOOR, "-o"),
        ("plan", FRONT_DOOR, "--set"),
        ("schema", "extra"),
    ],
)
def test_wrong_use_ends_with_2(run: Run, words: tuple[str, ...]) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert "Error" in err


def test_files_that_are_not_there(run: Run, tmp_path: Path) -> None:
    for path in ("gone.yaml", str(tmp_path), "x" * 300):
        for command in ("plan", "render"):
            code, out, err = run(command, path)
            assert (code, out) == (2, "")
            assert err.startswith(f"{path}:1:1: error PD105: ")
    code, out, _ = run("check", "gone.yaml")
    assert code == 2
    assert "gone.yaml:1:1: error PD105: no such file" in out
    assert run("check", str(tmp_path)) == (2, "", f"{tmp_path}: no recipes (*.yaml) in this folder\n")
    code, out, err = run("check", "x" * 5000)
    assert (code, "Traceback" in out + err) == (2, False)


def test_names_that_are_not_unicode_are_printed_all_the_same(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/caf\xe9.yaml"
    Path(os.fsdecode(name)).write_text("schema: 1\n")
    for words in (
        ("check", os.fsdecode(name)),
        ("plan", os.fsdecode(name)),
        ("check", FRONT_DOOR, "--set", "name=\udce9"),
    ):
        done = _process(*words)
        assert done.returncode == 2
        assert b"error PD1" in done.stdout + done.stderr
        assert b"Traceback" not in done.stderr


def test_a_reader_that_stops_early_is_no_error_to_shout_about() -> None:
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m pdkit.cli plan '{FRONT_DOOR}' | head -1"],
        capture_output=True,
        check=False,
    )
    assert done.stdout.strip()
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["typer.", "pdkit.cli_check", "pdkit.recipe.", "pydantic.", "pdkit.rules."])
def test_ctrl_c_while_a_command_is_still_being_imported(module: str) -> None:
    argv = [sys.executable, "-X", "importtime", "-m", "pdkit", "plan", FRONT_DOOR]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as one:
        assert one.stderr
        assert any(line.rpartition("| ")[2].lstrip().startswith(module) for line in one.stderr), "never imported"
        one.send_signal(signal.SIGINT)
        said = one.stderr.read()
    assert (one.returncode, said.splitlines()[-1]) == (8, "interrupted")
    assert "Traceback" not in said


WRAPPED = """
import os, signal, sys
from pdkit import cli
from pdkit.errors import InterruptedRunError
signal.signal(signal.SIGINT, cli._interrupt)
try:
    os.kill(os.getpid(), signal.SIGINT)
except InterruptedRunError as error:
    seen = error
raise ValueError(f"Error building: {' '.join(sys.argv[1:])}") from (seen if "chained" in sys.argv else None)
"""


@pytest.mark.parametrize(
    ("words", "code", "last"),
    [
        ("InterruptedRunError: interrupted", 8, "interrupted"),
        ("chained", 8, "interrupted"),
        ("by itself", 1, "ValueError: Error building: by itself"),
    ],
)
def test_ctrl_c_that_a_library_wraps_is_still_one(words: str, code: int, last: str) -> None:
    done = subprocess.run([sys.executable, "-c", WRAPPED, words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (code, last)
    assert ("Traceback" in done.stderr) == (code == 1)


def test_the_exit_code_of_the_first_moment_is_that_of_the_rest() -> None:
    assert InterruptedRunError.exit_code == entry.INTERRUPTED


def test_the_command_line_starts_without_the_heavy_parts() -> None:
    heavy = "{'pydantic', 'yaml', 'jinja2', 'requests', 'submitit', 'matplotlib'}"
    code = f"import sys, pdkit.cli; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_planning_pulls_in_no_templates_and_no_network() -> None:
    code = (
        "import sys; sys.argv = ['pdkit', 'check', sys.argv[1]]\n"
        "from pdkit.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'jinja2', 'requests', 'submitit', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, FRONT_DOOR], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["check", "plan"])
def test_closed_streams_are_no_traceback(command: str) -> None:
    line = f'"{sys.executable}" -m pdkit.cli {command} "{FRONT_DOOR}"'
    assert subprocess.run(["sh", "-c", f"{line} >&-"], capture_output=True, check=False, timeout=60).stderr == b""
    done = subprocess.run(["sh", "-c", f"{line} --set decode.mtp=x 2>&-"], capture_output=True, check=False, timeout=60)
    assert done.returncode == 2


def test_a_clean_check_does_not_load_rich() -> None:
    """It would cost a tenth of the command's CPU time."""
    code = f"import sys; from pdkit.cli import main; sys.argv = ['pdkit', 'check', {FRONT_DOOR!r}]\ntry: main()\n"
    code += "except SystemExit: pass\nsys.exit('rich.console' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60).returncode == 0
