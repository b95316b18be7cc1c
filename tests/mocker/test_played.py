"""What a played engine understands of its command line, says, counts and moves: the parts, without Dynamo."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path

import pytest

from pdkit.commands import planned
from pdkit.job.prometheus import parse_page, total
from pdkit.launch.rehearsal import equip, rehearsal_sets
from pdkit.mocker import counters, wire
from pdkit.mocker.answers import is_wrong, said
from pdkit.mocker.tokenizer import model_files
from pdkit.mocker.told import Join, Told, read_told
from pdkit.render.folder import write_run_folder

ROOT = Path(__file__).parents[2]
LARGE = ROOT / "recipes" / "qwen38" / "published" / "4xtp2dp4-1xtp4dp4-cc2560.yaml"
FRONT_DOOR = ROOT / "recipes" / "qwen38_tep8.yaml"


def rendered(recipe: Path, folder: Path, rehearsal: str | None = "mocker") -> Path:
    [(loaded, plan, findings)] = planned(recipe, rehearsal_sets(recipe, ()))
    write_run_folder(folder, plan, loaded.source, findings, rehearsal)
    return folder


def told_of(folder: Path, step: str) -> Told:
    """What a played engine reads from the arguments that a step's script gives it."""
    text = (folder / "steps" / f"{step}.sh").read_text()
    lines = text.partition("args=(\n")[2].partition("\n)\n")[0].splitlines()
    words = [word for line in lines for word in shlex.split(line, comments=True)]
    return read_told([re.sub(r"\$\{NODE_IP_(\d+)\}", r"10.0.0.\1", word) for word in words], folder)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_every_process_of_an_endpoint_knows_where_to_meet(tmp_path: Path) -> None:
    folder = rendered(FRONT_DOOR, tmp_path / "run")
    leader, headless = told_of(folder, "decode0-0"), told_of(folder, "decode0-1")
    assert (leader.headless, headless.headless) == (False, True)
    assert leader.joins == (Join(address="10.0.0.2", port=24501, leads=True, others=1),)
    assert headless.joins == (Join(address="10.0.0.2", port=24501, leads=False, others=1),)
    first, second = told_of(folder, "prefill0-0"), told_of(folder, "prefill0-1")
    assert (first.ranks, second.ranks) == ((0,), (1,))
    assert first.joins == (Join(address="10.0.0.0", port=24000, leads=True, others=1),)
    assert second.joins == (Join(address="10.0.0.0", port=24000, leads=False, others=1),)
    assert (leader.block_size, leader.mtp, leader.role) == (2176, 3, "decode")
    large = rendered(LARGE, tmp_path / "large")
    assert [told_of(large, f"prefill3-{part}").ranks for part in (0, 1)] == [(0, 1), (2, 3)]
    assert told_of(large, "decode0-0").joins[0].others == 3


def test_a_page_is_what_readiness_reads(tmp_path: Path) -> None:
    told = told_of(rendered(LARGE, tmp_path / "run"), "prefill0-1")
    ranks = [counters.Rank(number) for number in told.ranks]
    ranks[1].received, ranks[1].failed = 70, 2
    samples = list(parse_page(counters.page(told, ranks)))
    configs = [one.labels for one in samples if one.name == "vllm:cache_config_info"]
    assert [one["engine"] for one in configs] == ["2", "3"]
    assert {one["block_size"] for one in configs} == {str(told.block_size)}
    assert {one["num_gpu_blocks"] for one in configs} == {str(2 * told.kv_blocks)}, "of both ranks, as vLLM counts"
    planned = json.loads((tmp_path / "run" / "plan.json").read_text())["roles"]["prefill"]["max_concurrency"]
    assert {float(one["kv_cache_max_concurrency"]) for one in configs} == {planned["per_rank"]}
    assert total(samples, "vllm:prompt_tokens_by_source_total", source="external_kv_transfer") == 70
    assert total(samples, "vllm:nixl_num_failed_transfers_total") == 2


@pytest.mark.parametrize(("count", "right", "wrongs"), [(200, 0.96, 8), (1319, 0.96, 52), (200, 0.5, 100), (7, 1.0, 0)])
def test_the_share_of_right_answers_is_exact(count: int, right: float, wrongs: int) -> None:
    assert sum(is_wrong(number, right) for number in range(count)) == wrongs


def test_a_wrong_answer_has_another_number() -> None:
    assert said("2 + 2 = 4\n#### 1,204", wrong=False).endswith("#### 1,204")
    assert said("2 + 2 = 4\n#### 1,204", wrong=True).endswith("#### 1205")


def test_a_token_is_a_character() -> None:
    files = model_files()
    tokenizer = json.loads(files["tokenizer.json"])
    vocabulary = tokenizer["model"]["vocab"]
    special = {one["content"] for one in tokenizer["added_tokens"]}
    assert sorted(vocabulary.values()) == list(range(json.loads(files["config.json"])["vocab_size"]))
    assert all(len(token) == 1 for token in vocabulary.keys() - special), "a load tool draws only from these"
    assert len(vocabulary) > 200, "the text comparison asks for token ids up to 200"


def test_a_prompt_crosses_once() -> None:
    async def there_and_back() -> None:
        kept = wire.Kept()
        async with await kept.serve("127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            ticket = kept.keep([7, 8, 355])
            assert await wire.fetch("127.0.0.1", port, ticket) == [7, 8, 355]
            with pytest.raises(OSError, match="no longer has the prompt"):
                await wire.fetch("127.0.0.1", port, ticket)

    asyncio.run(there_and_back())


def test_the_loss_of_one_process_is_seen_by_the_others() -> None:
    async def meet_and_part() -> list[str]:
        lost: list[str] = []
        leads = Join(address="127.0.0.1", port=41974, leads=True, others=1)
        leader = asyncio.create_task(wire.meet(leads, lambda: lost.append("leader's")))
        await asyncio.sleep(0.1)
        assert not leader.done(), "it waits for the other one"
        _, writer = await asyncio.open_connection("127.0.0.1", 41974)
        server = await asyncio.wait_for(leader, 5)
        assert server
        async with server:
            assert not lost
            writer.close()
            await writer.wait_closed()
            await asyncio.sleep(0.2)
        return lost

    assert asyncio.run(meet_and_part()) == ["leader's"]


def test_a_rehearsal_changes_the_lock_and_none_of_the_scripts(tmp_path: Path) -> None:
    played, real = rendered(FRONT_DOOR, tmp_path / "played"), rendered(FRONT_DOOR, tmp_path / "real", None)
    locks = [json.loads((folder / "lock.json").read_text()) for folder in (played, real)]
    assert [lock.get("rehearsal") for lock in locks] == ["mocker", None]
    assert locks[0]["digest"] != locks[1]["digest"]
    for file in [real / "job.sbatch", *(real / "steps").iterdir()]:
        assert (played / file.relative_to(real)).read_bytes() == file.read_bytes()
    equip(played)
    snapshot = "rehearsal/hub/models--Inferact--Qwen3.8-2.4T-A95B-NVFP4/snapshots/rehearsal/tokenizer.json"
    assert (played / snapshot).is_file()
