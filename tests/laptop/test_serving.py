"""The rack's stack on this machine: Dynamo, vLLM and NIXL answer right, and wrong when block sizes differ."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import LAPTOP, Score, Stack, Worker

pytestmark = pytest.mark.local

NO_PREFIX_CACHE = "--no-enable-prefix-caching"
"""As in published recipes; a decode cache would also hide most of the prompt from the transfer."""


@dataclass(frozen=True)
class Served:
    """What a deployment answered, and what decode counted meanwhile."""

    scores: dict[str, Score]
    transferred: float
    failed: float


@pytest.fixture(params=["dense", "hybrid"])
def model(request: pytest.FixtureRequest, engines: Path) -> Path:
    return LAPTOP / "models" / str(request.param)


def serve(model: Path, folder: Path, decode_block: int, *protocols: str) -> Served:
    """Ask a fresh deployment with prefill blocks of 128 and decode blocks of `decode_block`."""
    stack = Stack(model, folder)
    with (
        stack.frontend(),
        stack.worker("prefill", 128),
        stack.worker("decode", decode_block, NO_PREFIX_CACHE) as decode,
    ):
        stack.wait_for_answer()
        scores = {protocol: stack.ask(protocol) for protocol in protocols}
        failed = decode.counter("vllm:nixl_num_failed_transfers_total")
        return Served(scores, transferred_tokens(decode), failed)


def test_equal_block_sizes_answer_right_and_the_kv_really_moves(model: Path, tmp_path: Path) -> None:
    served = serve(model, tmp_path, 128, "chat-cot", "completions-5shot")
    assert served.transferred > 32 * (served.scores["chat-cot"].shortest_prompt - 1)
    assert served.failed == 0
    for protocol, score in served.scores.items():
        assert min(score.strict, score.flexible) >= 0.95, (protocol, score)
        assert score.shortest_prompt > 128, (protocol, score)


def test_decode_blocks_of_256_beside_128_answer_garbage_with_http_200(model: Path, tmp_path: Path) -> None:
    served = serve(model, tmp_path, 256, "chat-cot")  # fails itself on any status but 200
    assert served.transferred > 0
    assert served.failed == 0
    score = served.scores["chat-cot"]
    assert max(score.strict, score.flexible) < 0.2, score


def transferred_tokens(decode: Worker) -> float:
    """Prompt tokens whose KV came from the prefill engine."""
    return decode.counter("vllm:prompt_tokens_by_source_total", source="external_kv_transfer")
