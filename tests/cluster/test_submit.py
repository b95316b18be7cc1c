"""What reaches Slurm, what it refuses, and what is not submitted at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TOKEN = "hf_" + "a1b2c3d4" * 4


@pytest.mark.parametrize(
    ("setting", "said", "fix"),
    [
        ("cluster.partition=nope", "invalid partition specified: nope (Invalid partition name specified)", "sinfo -s"),
        ("cluster.account=nobody", "Invalid account or account/partition combination specified", "sacctmgr"),
        ("cluster.time_limit=99:00:00", "Requested time limit is invalid", "cluster.time_limit"),
        ("cluster.directives={bogus: true}", "unrecognized option '--bogus'", "cluster.directives"),
        ("cluster.directives={nodelist: node77}", "Invalid node name specified", "ask for fewer nodes"),
    ],
)
def test_a_refusal_is_one_sentence_with_a_fix(cluster, pdkit, setting: str, said: str, fix: str) -> None:
    ran = pdkit("submit", HERE / "small.yaml", "-o", cluster.runs / "refused", "--set", setting)
    assert ran.code == 3
    sentence, what_to_do = ran.err.split("\n")
    assert sentence.startswith("Slurm refused the job: ")
    assert said in sentence
    assert fix in what_to_do
    assert list((cluster.runs / "refused").glob("[!.]*")) == [], "a run that never was leaves no folder"


def test_nineteen_nodes_are_refused_by_the_command_itself(cluster) -> None:
    """Exit code and output as a shell sees them."""
    command = [sys.executable, "-m", "pdkit.cli", "submit", HERE / "small.yaml", "-o", cluster.runs]
    # what Slurm is asked for, behind the back of the plan
    asked = ("--set", "cluster.directives={nodes: 19}", "--set", "cluster.segment=none")
    done = subprocess.run([*command, *asked], text=True, capture_output=True, check=False)
    assert done.returncode == 3, done.stderr
    assert done.stdout == ""
    assert done.stderr.splitlines()[0] == "Slurm refused the job: Node count specification invalid"
    assert len(done.stderr.splitlines()) == 2
    # a plan of 19 nodes does not even come so far
    planned = ("--set", "hardware={facts: gb300-nvl72, nodes: 19}", "--set", "decode.endpoints=18")
    done = subprocess.run([*command, *planned], text=True, capture_output=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "19 nodes do not fit one NVLink domain of 18" in done.stderr


def test_test_only_tells_the_start_and_leaves_nothing(cluster, pdkit) -> None:
    before = cluster.slurm("squeue", "--noheader", "--states=all", "--format=%i")
    ran = pdkit("submit", HERE / "small.yaml", "-o", cluster.runs / "tested", "--test-only")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("small: Job ")
    assert f"on nodes {cluster.config.name}-[" in ran.out
    assert not (cluster.runs / "tested").exists()
    assert cluster.slurm("squeue", "--noheader", "--states=all", "--format=%i") == before
    refused = pdkit("submit", HERE / "small.yaml", "--test-only", "--set", "cluster.partition=nope")
    assert (refused.code, refused.err.splitlines()[0].count("nope")) == (3, 1)


def test_the_same_is_not_submitted_twice(cluster, pdkit) -> None:
    words = ("submit", HERE / "small.yaml", "-o", cluster.runs, "--set", "name=twice", "--hold")
    first = pdkit(*words)
    assert "submitted, 2 nodes" in first.out
    elsewhere = (*words[:3], cluster.runs.parent / "elsewhere", *words[4:])
    for again in (words, elsewhere):
        shown = pdkit(*again)
        assert shown.code == 0, shown.err
        assert "is pending already, nothing submitted" in shown.out
        assert first.out.partition(": job ")[2].split()[0] == shown.out.partition(": job ")[2].split()[0]
    [new] = json.loads(pdkit(*words, "--again", "--json").out)["jobs"]
    assert new["new"]
    assert Path(new["folder"]).name.endswith("-2")
    changed = json.loads(pdkit(*words, "--set", "workload.osl=64", "--json").out)["jobs"]
    assert changed[0]["new"], "another lock is another run"


def test_a_refusal_in_a_matrix_does_not_hide_what_was_submitted(cluster, pdkit) -> None:
    sets = ("--set", "name=half", "--set", "matrix={cluster.partition: [batch, nope]}", "--hold")
    ran = pdkit("submit", HERE / "small.yaml", "-o", cluster.runs / "half", "--json", *sets)
    assert (ran.code, "nope" in ran.err) == (3, True)
    [job] = json.loads(ran.out)["jobs"]
    assert [str(folder) for folder in (cluster.runs / "half").glob("[!.]*")] == [job["folder"]]
    cluster.slurm("scancel", job["job"])


def test_a_matrix_is_a_job_per_engine_configuration_and_names_the_report_over_all(cluster, pdkit) -> None:
    sets = ("--set", "name=grid", "--set", "matrix={decode.max_num_seqs: [32, 64]}", "--hold")
    ran = pdkit("submit", HERE / "small.yaml", "-o", cluster.runs / "grid", *sets)
    assert ran.code == 0, ran.err
    *jobs, report = ran.out.splitlines()
    folders = [line.split(": job ")[0] for line in jobs]
    assert sorted(folders) == sorted(str(folder) for folder in (cluster.runs / "grid").glob("[!.]*"))
    assert report == f"all of them in one report, once they have ended: pdkit report {' '.join(folders)}"
    cluster.slurm("scancel", *(line.split(": job ")[1].split()[0] for line in jobs))


def test_the_cluster_file_is_under_the_recipe(cluster, pdkit, home: Path) -> None:
    token = home / "token"
    token.write_text(f"{TOKEN}\n")
    token.chmod(0o600)
    written = home / "pdkit" / "clusters.yaml"
    written.parent.mkdir()
    written.write_text(
        "default: mine\nclusters:\n  mine:\n    cluster:\n      partition: debug\n      time_limit: '0:08:00'\n"
        f"      account: perf\n    hf_token_file: {token}\n"
    )
    try:
        folder = cluster.submit("--set", "name=mine", "--set", "cluster.time_limit=0:09:00")
        cluster.driving(folder)
    finally:
        written.unlink()
        written.parent.rmdir()
    job = cluster.job(folder)
    asked = cluster.slurm("squeue", "--noheader", f"--jobs={job}", "--format=%P %a %l").split()
    assert asked == ["debug", "perf", "9:00"], "the recipe's time wins, the rest is the cluster's"
    assert json.loads((folder / "job.json").read_text())["jobs"][0]["cluster"] == "mine"
    # the token came to the job, and stands nowhere else: folder, Slurm's record, command lines
    assert json.loads((folder / "seen.json").read_text()) == {"token": TOKEN, "partition": "debug"}
    log = folder / "logs" / "driver.log"  # this driver tells everything
    cluster.wait_until(lambda: f"HF_TOKEN={TOKEN}" in log.read_text(), "srun has written the line")
    holding = [file.name for file in folder.rglob("*") if file.is_file() and TOKEN.encode() in file.read_bytes()]
    assert sorted(holding) == ["driver.log", "seen.json"], "only where the stand-in has put it"
    assert TOKEN not in cluster.slurm("scontrol", "show", "job", job)
    assert TOKEN not in subprocess.run(["ps", "axww", "-o", "args"], text=True, capture_output=True, check=True).stdout
    assert "HF_TOKEN" not in os.environ
    shown = pdkit("logs", folder, "driver").out
    assert "HF_TOKEN=[secret]" in shown
    assert TOKEN not in shown
    cluster.slurm("scancel", job)


def test_variables_for_sbatch_do_not_overrule_the_recipe(cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "nope")
    monkeypatch.setenv("SBATCH_TIMELIMIT", "3")
    folder = cluster.submit("--set", "name=env", "--hold", "--set", "cluster.partition=batch")
    job = cluster.job(folder)
    assert cluster.slurm("squeue", "--noheader", f"--jobs={job}", "--format=%P %l").split() == ["batch", "2:00:00"]
    assert os.environ["SBATCH_TIMELIMIT"] == "3"
    cluster.slurm("scancel", job)


def test_what_is_not_safe_is_not_submitted(cluster, pdkit) -> None:
    before = cluster.slurm("squeue", "--noheader", "--states=all", "--format=%i")
    secret = pdkit(
        "submit", HERE / "small.yaml", "-o", cluster.runs / "unsafe", "--set", f"common.env={{HF_TOKEN: {TOKEN}}}"
    )
    assert secret.code == 2
    assert "a secret would be written down here" in secret.err
    assert TOKEN not in secret.err
    assert list((cluster.runs / "unsafe").glob("[!.]*")) == []
    pdkit("render", HERE / "small.yaml", "-o", cluster.runs / "open")
    [folder] = (cluster.runs / "open").iterdir()
    (folder / "steps" / "driver.sh").chmod(0o777)
    open_to_all = pdkit("submit", "--resume", folder)
    assert open_to_all.code == 2
    assert f"{folder.resolve() / 'steps' / 'driver.sh'}: anyone may write here" in open_to_all.err
    assert cluster.slurm("squeue", "--noheader", "--states=all", "--format=%i") == before


def test_a_careless_umask_opens_nothing(cluster) -> None:
    before = os.umask(0)
    try:
        folder = cluster.submit("--set", "name=careless", "--hold")
    finally:
        os.umask(before)
    written = [path for path in (folder, *folder.rglob("*")) if not path.is_symlink()]
    assert [path for path in written if path.stat().st_mode & 0o002] == []
    cluster.slurm("scancel", cluster.job(folder))
