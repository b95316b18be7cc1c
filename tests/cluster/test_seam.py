"""What pdkit leans on inside submitit 1.5, name by name, and what Slurm makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import submitit

from pdkit.errors import ClusterError
from pdkit.launch import slurm as seam
from pdkit.launch.slurm import Options, RefusedError, RenderedExecutor, submit

HERE = Path(__file__).parent


@pytest.fixture
def folder(cluster, pdkit, tmp_path: Path) -> Path:
    pdkit("render", HERE / "small.yaml", "-o", tmp_path)
    [found] = tmp_path.iterdir()
    return found


def test_submitit_is_the_release_that_the_seam_was_made_for() -> None:
    assert submitit.__version__.startswith("1.5.")


def test_the_rendered_script_is_the_job(cluster, folder: Path) -> None:
    """`_make_submission_file_text`: Slurm holds the very bytes of job.sbatch, nothing of submitit's own."""
    job = submit(folder, Options(hold=True))
    assert cluster.slurm("scontrol", "write", "batch_script", job, "-") == (folder / "job.sbatch").read_text()
    kept = folder / "submitted" / f"{job}_submission.sh"
    assert kept.read_text() == (folder / "job.sbatch").read_text()
    cluster.slurm("scancel", job)


def test_the_command_carries_folder_and_options(cluster, folder: Path) -> None:
    """`_make_submission_command`: the run folder is the job's, wherever pdkit was called, and --hold arrives."""
    job = submit(folder, Options(hold=True))
    told = cluster.slurm("squeue", "--noheader", f"--jobs={job}", "--format=%r|%Z").strip()
    assert told == f"JobHeldUser|{folder.resolve()}"
    later = submit(folder, Options(hold=True, dependency=f"afterok:{job}"))
    assert f"afterok:{job}" in cluster.slurm("squeue", "--noheader", f"--jobs={later}", "--format=%E")
    cluster.slurm("scancel", job, later)


def test_submitit_takes_it_for_one_task(cluster, folder: Path) -> None:
    """`_num_tasks`: else submitit would ask the missing parameters for them."""
    assert RenderedExecutor(folder, [])._num_tasks() == 1


def test_submitting_goes_through_submitit(cluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`_submit_command`: a refusal comes as submitit's error with sbatch's words, and becomes ours."""
    script = folder / "job.sbatch"
    script.write_text(script.read_text().replace("#SBATCH --exclusive", "#SBATCH --partition=nope"))
    with pytest.raises(RefusedError, match="invalid partition specified: nope"):
        submit(folder)
    assert not (folder / "job.json").exists()


def test_an_sbatch_that_does_not_answer_is_not_waited_for(
    cluster, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow" / "sbatch"
    slow.parent.mkdir()
    slow.write_text('#!/bin/sh\n[ "$1" = --version ] || exec sleep 60\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{__import__('os').environ['PATH']}")
    monkeypatch.setattr(seam, "SUBMIT_SECONDS", 1)
    with pytest.raises(ClusterError, match="gave no answer within 1 s") as caught:
        submit(folder)
    assert not isinstance(caught.value, RefusedError), "whether there is a job is not known, so the folder stays"
