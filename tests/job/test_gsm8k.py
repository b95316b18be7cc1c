"""GSM8K: files, prompts and extraction, against what a real lm-eval 0.4.13 said (see make_lm_eval_cases.py)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from pdkit.errors import RecipeError
from pdkit.job.gsm8k import (
    Question,
    build_request,
    draw_shots,
    extract_flexible,
    extract_strict,
    is_correct,
    load_accuracy,
    load_protocol,
    load_questions,
    normalise,
    visible_text,
)
from pdkit.paths import shipped

HERE = Path(__file__).parent
CASES = [json.loads(line) for line in (HERE / "lm_eval_cases.jsonl").read_text().splitlines()]
PROMPTS = json.loads((HERE / "lm_eval_prompts.json").read_text())
SHARED = HERE.parents[2] / "shared/data/gsm8k_test.jsonl"


def rows_to_questions(rows: list[dict[str, str]]) -> list[Question]:
    return [Question(number, row["question"], row["answer"]) for number, row in enumerate(rows, start=1)]


def test_extraction_agrees_with_lm_eval_on_every_case():
    differences = []
    for case in CASES:
        gold = normalise(case["answer"])
        strict, flexible = extract_strict(case["text"]), extract_flexible(case["text"])
        ours = (strict or "[invalid]", is_correct(strict, gold), flexible or "[invalid]", is_correct(flexible, gold))
        theirs = (case["strict"], case["strict_correct"], case["flexible"], case["flexible_correct"])
        if ours != theirs:
            differences.append((case["text"], ours, theirs))
    assert differences == []


def test_the_cases_can_tell_right_from_wrong():
    assert len(CASES) >= 800
    for key in ("strict", "flexible"):
        assert sum(case[f"{key}_correct"] for case in CASES) >= 50
        assert sum(case[key] == "[invalid]" for case in CASES) >= 20
    assert sum(case["strict_correct"] != case["flexible_correct"] for case in CASES) >= 50


def test_prompts_are_those_of_lm_eval():
    protocol = load_protocol("completions-5shot")
    pool, questions = rows_to_questions(PROMPTS["train"]), rows_to_questions(PROMPTS["test"])
    assert PROMPTS["lm_eval"] == "0.4.13"
    assert list(protocol.stop) == PROMPTS["stop"]
    for question, shots, expected in zip(
        questions, draw_shots(protocol, pool, len(questions)), PROMPTS["prompts"], strict=True
    ):
        body = build_request(protocol, question, shots, model="m", max_tokens=256).body
        assert body["prompt"] == expected
        assert (body["temperature"], body["max_tokens"]) == (0, 256)


def test_normalising_is_lm_evals():
    assert [normalise(text) for text in ("$1,080.", "A #### b #### $7.", "18.00", "N")] == ["1080", "7", "18.00", "n"]


def test_a_small_pool_is_used_whole_and_in_order():
    protocol = load_protocol("completions-5shot")
    pool = rows_to_questions(PROMPTS["train"])[:3]
    assert draw_shots(protocol, pool, 2) == [tuple(pool), tuple(pool)]
    with pytest.raises(RecipeError, match="needs worked examples"):
        draw_shots(protocol, [], 2)


def test_a_zero_shot_protocol_refuses_examples_that_it_would_not_use():
    protocol = load_protocol("chat-cot")
    assert draw_shots(protocol, [], 3) == [(), (), ()]
    with pytest.raises(RecipeError, match="without worked examples"):
        draw_shots(protocol, rows_to_questions(PROMPTS["train"]), 3)


def test_the_chat_request_is_one_user_message():
    question = Question(1, "How many {answer}s?", "#### 4")
    request = build_request(load_protocol("chat-cot"), question, (), model="m", max_tokens=99)
    assert request.path == "/v1/chat/completions"
    (message,) = request.body["messages"]
    assert message["role"] == "user"
    assert message["content"].startswith("How many {answer}s?\n\n")
    assert "stop" not in request.body


def test_the_digest_of_a_request_covers_all_but_the_model():
    protocol = load_protocol("completions-5shot")
    question, other = rows_to_questions(PROMPTS["test"])[:2]
    shots = rows_to_questions(PROMPTS["train"])[:5]
    digest = build_request(protocol, question, shots, model="a", max_tokens=256).sha256
    assert build_request(protocol, question, shots, model="b", max_tokens=256).sha256 == digest
    assert build_request(protocol, question, shots, model="a", max_tokens=257).sha256 != digest
    assert build_request(protocol, question, shots[:4], model="a", max_tokens=256).sha256 != digest
    assert build_request(protocol, other, shots, model="a", max_tokens=256).sha256 != digest


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("#### 4", "#### 4"),
        ("2 and 2\n</think>\n\n#### 4", "#### 4"),
        ("<think>a</think>b</think> #### 4", "#### 4"),
        ("<think>\nperhaps 4", ""),
        ("3 < 4, so <think> is a word. #### 4", "3 < 4, so <think> is a word. #### 4"),
    ],
)
def test_thinking_is_not_scored(text: str, visible: str):
    assert visible_text(load_protocol("chat-cot"), text) == visible
    assert visible_text(load_protocol("completions-5shot"), text) == text


def test_the_shipped_examples_are_right_and_five():
    shots = load_questions(shipped("accuracy") / "shots.jsonl")
    assert len(shots) == 5
    assert [shot.gold for shot in shots] == ["1800", "27", "11", "22", "15"]
    assert all(extract_strict(shot.answer) == extract_flexible(shot.answer) for shot in shots)


def test_an_unknown_protocol_names_the_known_ones():
    with pytest.raises(RecipeError, match="completions-5shot, chat-cot"):
        load_protocol("completions")


def test_the_protocol_file_refuses_what_it_does_not_know(tmp_path: Path):
    text = (shipped("accuracy") / "gsm8k.yaml").read_text()
    file = tmp_path / "gsm8k.yaml"
    file.write_text(text.replace("shots_seed: 1234", "shot_seed: 1234"))
    with pytest.raises(RecipeError, match="shot_seed"):
        load_accuracy(file)


def test_questions_are_numbered_by_their_line(tmp_path: Path):
    file = tmp_path / "q.jsonl"
    file.write_text('{"question": "a?", "answer": "1 + 1\\n#### 1,002"}\n{"question": "b?", "answer": "#### -5"}\n')
    first, second = load_questions(file, hashlib.sha256(file.read_bytes()).hexdigest())
    assert (first.id, first.gold, second.id, second.gold) == ("q0001", "1002", "q0002", "-5")
    assert first.sha256 != second.sha256


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[1]", "no question and answer"),
        ('{"question": "a?"}', "no question and answer"),
        ('{"question": 1, "answer": "#### 1"}', "no question and answer"),
        ('{"question": "a?", "answer": "5"}', "#### NUMBER"),
    ],
)
def test_a_bad_line_is_named_with_its_place(tmp_path: Path, line: str, message: str):
    file = tmp_path / "q.jsonl"
    file.write_text('{"question": "a?", "answer": "#### 1"}\n' + line + "\n")
    with pytest.raises(RecipeError, match=message) as caught:
        load_questions(file)
    assert caught.value.at == f"{file}:2:1"


def test_a_wrong_digest_an_empty_file_and_a_missing_one_are_errors(tmp_path: Path):
    file = tmp_path / "q.jsonl"
    file.write_text("")
    with pytest.raises(RecipeError, match="no questions"):
        load_questions(file)
    with pytest.raises(RecipeError, match="expected 00"):
        load_questions(file, "00")
    with pytest.raises(RecipeError, match="No such file"):
        load_questions(tmp_path / "absent.jsonl")


@pytest.mark.skipif(not SHARED.exists(), reason="the public test split is not on this machine")
def test_the_public_test_split_is_read_whole():
    spec = load_accuracy().data["test"]
    questions = load_questions(SHARED, spec.sha256)
    assert len(questions) == spec.lines == len({question.sha256 for question in questions})
    assert all(is_correct(extract_strict(question.answer), question.gold) for question in questions)
