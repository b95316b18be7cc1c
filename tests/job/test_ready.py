"""What readiness is read from: the run folder, the router, every rank's page. Whole proofs are in tests/launch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from pdkit.commands import planned
from pdkit.errors import NotReadyError
from pdkit.job import router
from pdkit.job.deployment import Deployment, Worker, read_deployment
from pdkit.job.engine_report import rank_pages
from pdkit.job.ready import Prover
from pdkit.job.router import boot_ids, missing_parts, unregistered
from pdkit.render.folder import write_run_folder

from ..fakes.launches import RECIPE
from ..fakes.site.dynamo import web

NOWHERE = "http://127.0.0.1:1"
Make = Callable[..., Deployment]
Pages = dict[str, web.Answer]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A deployment of the fakes' recipe, as the driver reads it from its run folder."""

    def one(*sets: str, recipe: Path = RECIPE) -> Deployment:
        loaded, plan, findings = planned(recipe, sets)[0]
        write_run_folder(tmp_path / "run", plan, loaded.source, findings)
        return read_deployment(tmp_path / "run", lambda node: f"10.0.0.{node}")

    return one


@pytest.fixture
def pages() -> Pages:
    """What `server` answers, by path."""
    return {}


@pytest.fixture
def server(pages: Pages) -> str:
    port = web.serve("127.0.0.1", 0, lambda path, _body: pages.get(path, (404, "nothing here")))
    return f"http://127.0.0.1:{port}"


def at(deployment: Deployment, url: str) -> Deployment:
    """The deployment with its router and all workers at one address."""
    return replace(deployment, url=url, workers=tuple(replace(worker, url=url) for worker in deployment.workers))


def instances(*components: str) -> web.Answer:
    listed = [{"component": one, "endpoint": "generate", "instance_id": n + 1} for n, one in enumerate(components)]
    return 200, {"instances": [*listed, {"component": "backend", "endpoint": "clear_kv_blocks", "instance_id": 1}]}


# the run folder


def test_the_run_folder_tells_what_each_worker_must_report(make: Make) -> None:
    deployment = make("decode.topology=TP1DP2", "prefill.endpoints=2")
    names = ["prefill0", "prefill1", "decode0"]
    assert [worker.name for worker in deployment.workers] == names
    assert deployment.steps == tuple(names)
    assert [worker.ranks for worker in deployment.workers] == [(0,), (0,), (0, 1)]
    assert [worker.url for worker in deployment.workers] == [f"http://10.0.0.0:{port}" for port in (9100, 9101, 9102)]
    assert {worker.block_size for worker in deployment.workers} == {128}
    assert {worker.kv_blocks for worker in deployment.workers} == {506}  # 512 less one per cent
    assert deployment.url == "http://10.0.0.0:8000"
    assert deployment.model == "tiny"
    assert deployment.pair()
    assert [worker.name for worker in deployment.generating()] == ["decode0"]
    assert deployment.lock_digest == json.loads((deployment.folder / "lock.json").read_text())["digest"]
    assert deployment.log("decode0") == deployment.folder / "logs" / "decode0.log"


def test_workers_of_other_nodes_have_their_own_addresses_and_headless_ones_no_api(make: Make) -> None:
    deployment = make(recipe=RECIPE.parents[2] / "recipes" / "qwen38_tep8.yaml")
    headless = [step for step in deployment.steps if step not in [worker.name for worker in deployment.workers]]
    assert deployment.steps == ("prefill0-0", "prefill0-1", "decode0-0", "decode0-1")
    assert headless == ["decode0-1"]
    assert [worker.url.split(":")[1] for worker in deployment.workers] == ["//10.0.0.0", "//10.0.0.1", "//10.0.0.2"]
    assert [worker.ranks for worker in deployment.workers] == [(0,), (1,), (0,)]


def test_an_estimate_lowers_what_is_expected_by_its_error(make: Make) -> None:
    deployment = make()
    plan = json.loads((deployment.folder / "plan.json").read_text())
    plan["roles"]["decode"]["memory"]["error_gib"] = plan["roles"]["decode"]["memory"]["kv_cache_gib"] / 2
    plan["roles"]["prefill"]["memory"] = None
    (deployment.folder / "plan.json").write_text(json.dumps(plan))
    again = read_deployment(deployment.folder, str)
    assert [worker.kv_blocks for worker in again.workers] == [None, 253]


# the router


def test_everything_is_missing_where_nothing_listens(make: Make) -> None:
    assert missing_parts(at(make(), NOWHERE)) == ["frontend0", "prefill0", "decode0"]


def test_what_is_missing_is_named(make: Make, server: str, pages: Pages) -> None:
    deployment = at(make(), server)
    pages["/v1/models"] = 200, {"data": []}
    pages["/health"] = 503, {"instances": []}
    assert missing_parts(deployment) == ["prefill0", "decode0", "model tiny"]
    pages["/v1/models"] = 200, {"data": [{"id": "tiny"}]}
    assert missing_parts(deployment) == ["prefill0", "decode0"]
    pages["/health"] = instances("prefill", "backend")
    assert missing_parts(deployment) == []
    pages["/health"] = instances("prefill")
    assert missing_parts(deployment) == ["registration of decode0"]
    pages["/health"] = 200, "no JSON"
    assert missing_parts(deployment) == ["frontend0"]


def test_lost_engines_are_counted_by_role(make: Make, server: str, pages: Pages) -> None:
    deployment = at(make("decode.endpoints=3"), server)
    pages["/health"] = instances("prefill", "backend", "backend", "backend")
    assert unregistered(deployment) == []
    pages["/health"] = instances("prefill", "prefill", "backend")
    assert unregistered(deployment) == ["registration of 2 of 3 decode engines"]
    pages["/health"] = instances()
    assert unregistered(deployment) == ["registration of prefill0", "registration of 3 of 3 decode engines"]


def test_a_request_that_fails_for_a_lost_engine_names_the_loss(make: Make, server: str, pages: Pages) -> None:
    deployment = at(make(), server)
    pages["/health"] = instances("prefill", "backend")
    with pytest.raises(NotReadyError, match="first request: expected HTTP 200, seen HTTP 404"):
        Prover(deployment, lambda _note: None)._probe(0)
    pages["/health"] = instances("prefill")
    with pytest.raises(NotReadyError, match="seen the router has lost the registration of decode0") as error:
        Prover(deployment, lambda _note: None)._probe(0)
    assert "etcd" in str(error.value)


def test_a_router_that_still_joins_its_roles_is_waited_for(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, deployment = iter([503, 404, 200]), make()

    def post(*_words: object, **_named: object) -> SimpleNamespace:
        return SimpleNamespace(status_code=next(answers), text="")

    monkeypatch.setattr(router.requests, "post", post)
    monkeypatch.setattr(router.time, "sleep", lambda _seconds: None)
    assert router.refusal(deployment, {}, 1.0) == ""
    answers = iter([503, 500])
    assert router.refusal(deployment, {}, 1.0) == "HTTP 500 "


def test_boot_ids_are_of_all_processes_and_registrations(make: Make, server: str, pages: Pages) -> None:
    deployment = at(make(), server)
    (deployment.folder / "boot").mkdir()
    for name in ("prefill0", "decode0", "frontend0"):
        (deployment.folder / "boot" / name).write_text(f"id-of-{name}\n")
    pages["/health"] = instances("backend", "prefill")
    expected = ("prefill0=id-of-prefill0", "decode0=id-of-decode0", "instance=1", "instance=2")
    assert boot_ids(deployment) == expected
    pages["/health"] = instances("backend")
    assert boot_ids(deployment) == expected[:3]


def test_a_silent_router_is_not_taken_for_lost_engines(make: Make) -> None:
    deployment = at(make(), NOWHERE)
    for ask in (boot_ids, unregistered):
        with pytest.raises(requests.ConnectionError):
            ask(deployment)


# the ranks


def metrics(*ranks: dict[str, Any], **common: str) -> web.Answer:
    lines = []
    for number, rank in enumerate(ranks):
        labels = ",".join(f'{key}="{value}"' for key, value in {**common, "engine": number, **rank}.items())
        lines.append(f"vllm:cache_config_info{{{labels}}} 1.0")
        for source, tokens in (("local_compute", 10 + number), ("external_kv_transfer", 100 + number)):
            lines.append(f'vllm:prompt_tokens_by_source_total{{engine="{number}",source="{source}"}} {tokens}')
        lines.append(f'vllm:nixl_num_failed_transfers_total{{engine="{number}"}} {number}.0')
    return 200, "\n".join(lines)


@pytest.fixture
def worker(server: str) -> Worker:
    return Worker(name="decode0", role="decode", endpoint=0, ranks=(0, 1), url=server, block_size=128, kv_blocks=506)


def test_each_rank_has_its_own_counters_and_its_share_of_the_blocks(worker: Worker, pages: Pages) -> None:
    cache = {"effective_attention_block_size": "128", "block_size": "16", "num_gpu_blocks": "1024"}
    pages["/metrics"] = metrics({}, {}, **cache, kv_cache_size_tokens="65536", kv_cache_max_concurrency="32.5")
    first, second = rank_pages(worker)
    assert [first.name, second.name] == ["decode0 rank 0", "decode0 rank 1"]
    assert [first.computed(), second.computed()] == [10, 11]
    assert [first.received(), second.received()] == [100, 101]
    assert [first.failed_transfers(), second.failed_transfers()] == [0, 1]
    engine = second.engine()
    assert (engine.rank, engine.block_size, engine.kv_blocks, engine.kv_tokens) == ("1", 128, 512, 65536)
    assert engine.max_concurrency == 32.5


def test_a_single_rank_has_the_engine_s_name(worker: Worker, pages: Pages) -> None:
    pages["/metrics"] = metrics({}, block_size="128", num_gpu_blocks="512")
    (page,) = rank_pages(worker)
    assert page.name == "decode0"
    assert page.block_size() == "128"  # an older vLLM has no effective size
    assert page.engine().kv_blocks == 512


def test_what_an_engine_does_not_say_is_zero_and_never_enough(worker: Worker, pages: Pages) -> None:
    pages["/metrics"] = metrics({}, effective_attention_block_size="None", num_gpu_blocks="None")
    (page,) = rank_pages(worker)
    assert page.block_size() == "None"
    engine = page.engine()
    assert (engine.block_size, engine.kv_blocks, engine.kv_tokens, engine.max_concurrency) == (0, 0, 0, 0.0)


def test_an_engine_without_metrics_is_named_with_the_end_of_its_log(make: Make, server: str) -> None:
    deployment = at(make(), server)
    deployment.log("prefill0").write_text("".join(f"line {n}\n" for n in range(50)))
    prover = Prover(deployment, lambda _note: None)
    with pytest.raises(NotReadyError) as error:
        prover._engines_report_the_plan()
    lines = str(error.value).splitlines()
    assert lines[0].startswith("PD202 prefill0: metrics: expected a page of metrics, seen 404")
    assert lines[1] == "  last lines of logs/prefill0.log:"
    assert lines[2:22] == [f"  | line {n}" for n in range(30, 50)]
    assert len(lines) == 23  # and what to do
