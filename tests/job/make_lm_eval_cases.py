"""Write the cases of test_gsm8k.py: made-up outputs with what a real lm-eval 0.4.13 extracts and how it scores them.

Run by hand in an environment of its own (`pip install lm-eval==0.4.13`): `python make_lm_eval_cases.py OUT_FOLDER`. It
writes `lm_eval_cases.jsonl`, and `lm_eval_prompts.json`: the prompts that lm-eval builds from a made-up data set.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path

import lm_eval
from lm_eval.tasks import TaskManager

GOLDS = ("72", "1,080", "-5", "0", "3.5", "0.25", "42", "70000", "7", "1000000", "18.00", "2,5")
HAND = (
    "",
    " ",
    "\n",
    "####",
    "#### ",
    "#### $18",
    "####18",
    "#### 18",
    "##### 18",
    "####  18",
    "#### -18",
    "#### - 18",
    "#### +18",
    "#### 18.",
    "#### 18.0",
    "#### 18.00",
    "#### 1,8",
    "#### 18,000",
    "#### .",
    "#### ,",
    "#### ...",
    "#### 18.5.2",
    "#### 1e3",
    "#### eighteen",
    "#### 18 apples",
    "#### 18\n#### 19",
    "#### x\n#### 19",
    "The answer is 18.",
    "The answer is $18.00.",
    "The answer is **18**.",
    "\\boxed{18}",
    "$18$",
    "$$",
    "$",
    "...",
    "a, b. c",
    "18%",
    "18 %",
    "1 8",
    "3/4",
    "6*7=42",
    "<<6*7=42>>42",
    "so 6 * 7 = <<6*7=42>>42 eggs\n#### 42",
    "Answer: 42</s>",
    "42.",
    "42,",
    "$42",
    "-$42",
    "$-42",
    "- 42",
    "--42",
    "42-",
    "4-2",
    "1-",
    "0",
    "00",
    "007",
    "-0",
    "#### -0",
    "#### 007",
    "#### 0.0",
    "\u0664\u0662",
    "#### \u0664\u0662",
    "\uff14\uff12",
    "#### 42\u200b",
    "\u2212 5",
    "\u22125",
    "#### \u22125",
    "nothing at all",
    "#",
    "A#### 7",
    "#### 7#### 8",
    "#### 7 #### 8",
    "### 7",
    "# 7",
    "#### 72\n\nNote: see step 3",
    "step 1\nstep 2\n#### 72\nstep 3",
    "The total is 72\n####",
    "#### 72\r\n",
    "#### 72\t",
    "#### 72\x00",
    "\x00",
    "#### \n72",
    "####\u00a072",
    "#### 72USD",
    "#### USD 72",
    "#### 72,",
    "#### ,72",
    "#### $1,080",
    "1.080,00",
    "1,080.00",
    "#### 1080",
    "#### 1.080",
    "#### 1 080",
    "#### 1'080",
    "#### 3.5",
    "#### 3,5",
    "#### 7/2",
    "#### 1/4",
    "#### .25",
    "#### 0.250",
    "#### 25%",
    "#### [invalid]",
    "[invalid]",
    "INVALID 7",
    "#### 1000000",
    "#### 1,000,000",
    "#### 1000000.0",
    "$1000000",
    "$1,000,000.",
    "$,.",
    "-$,.",
    "-.",
    "-,",
    "-",
    "x-7",
    "x -7",
    "#### 2,5",
    "25",
    "#### 18.00",
    "#### 18",
    "18.00",
    "<think>72</think>",
    "7" * 400,
    "#### " + "1" * 300,
    "The answer is 7.\n" * 50,
    "#### 7\n" * 30,
    "0.25.",
    "#### 0.25.",
    "#### ..7",
    "#### 7..",
    "7..",
    "..7..",
)
PIECES = (
    "so",
    "then",
    "=",
    "*",
    "+",
    "-",
    "$",
    "%",
    ".",
    ",",
    "\n",
    " ",
    "#### ",
    "####",
    "#",
    "apples",
    "dollars",
    "Answer:",
    "The answer is ",
    "\\boxed{",
    "}",
    "**",
    "<<",
    ">>",
    "/",
    "(",
    ")",
    ":",
    "\u20ac",
    "\u2212",
    "\u00bd",
    "x",
    "'",
    "\t",
)


def number(draw: random.Random) -> str:
    return draw.choice(
        (
            str(draw.randint(-20, 2000)),
            f"{draw.randint(1000, 9999999):,}",
            f"${draw.randint(1, 500)}",
            f"{draw.randint(0, 99)}.{draw.randint(0, 99):02d}",
            f"${draw.randint(1000, 9999):,}.00",
            draw.choice(GOLDS),
        )
    )


def outputs() -> list[tuple[str, str]]:
    """Texts with the right answer that each is scored against; about half of the texts hold that answer somewhere."""
    draw = random.Random(20261129)
    made = [(text, draw.choice(GOLDS)) for text in HAND]
    made += [(text, gold) for text in HAND if "#### " in text for gold in ("18", "72", "7")]
    for _ in range(500):
        parts = [number(draw) if draw.random() < 0.35 else draw.choice(PIECES) for _ in range(draw.randint(1, 14))]
        numbers = [part for part in parts if part[-1:].isdigit()]
        gold = draw.choice(numbers).replace("$", "") if numbers and draw.random() < 0.7 else draw.choice(GOLDS)
        made.append((draw.choice(("", " ")).join(parts), gold))
    for gold in GOLDS:
        texts = (
            f"It is {gold}.\n#### {gold}",
            f"#### {gold}.",
            f"The total is ${gold}.",
            f"{gold} in all, in 3 steps",
            f"#### ${gold}",
        )
        made += [(text, gold) for text in texts]
    return made


def problem(draw: random.Random, kind: str) -> dict[str, str]:
    a, b = draw.randint(2, 99), draw.randint(2, 99)
    return {
        "question": f"A {kind} box holds {a} pens and another {b}. How many {{pens}}?",
        "answer": f"{a} + {b} = {a + b}\n#### {a + b}",
    }


def local_task(folder: Path, train: list[dict[str, str]], test: list[dict[str, str]]):
    """The task gsm8k as shipped, reading its data from two local files."""
    for name, rows in (("train", train), ("test", test)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    original = Path(lm_eval.__file__).parent / "tasks" / "gsm8k" / "gsm8k.yaml"
    text = (
        original.read_text()
        .replace("task: gsm8k", "task: gsm8k_local")
        .replace("dataset_path: openai/gsm8k", "dataset_path: json")
    )
    files = f"dataset_kwargs: {{data_files: {{train: {folder}/train.jsonl, test: {folder}/test.jsonl}}}}"
    (folder / "gsm8k_local.yaml").write_text(text.replace("dataset_name: main", files))
    task = TaskManager(include_path=str(folder)).load(["gsm8k_local"])["tasks"]["gsm8k_local"]
    task.set_fewshot_seed(1234)
    task.build_all_requests(limit=None, rank=0, world_size=1)
    return task


def main(out: Path) -> None:
    draw = random.Random(5)
    pairs = outputs()
    texts = [text for text, _ in pairs]
    test = [{"question": f"Number {i}?", "answer": f"Thus.\n#### {gold}"} for i, (_, gold) in enumerate(pairs)]
    train = [problem(draw, "red") for _ in range(40)]
    with tempfile.TemporaryDirectory() as name:
        task = local_task(Path(name), train, test)
        for instance, text in zip(task.instances, texts, strict=True):
            instance.resps = [text]
        task.apply_filters()
        with (out / "lm_eval_cases.jsonl").open("w") as stream:
            for instance, text, row in zip(task.instances, texts, test, strict=True):
                case = {"text": text, "answer": row["answer"]}
                for key, name_ in (("strict", "strict-match"), ("flexible", "flexible-extract")):
                    found = instance.filtered_resps[name_]
                    score = task.process_results(instance.doc, [found])["exact_match"]
                    case |= {key: found, f"{key}_correct": bool(score)}
                stream.write(json.dumps(case) + "\n")
    questions = [problem(draw, "blue") for _ in range(25)]
    with tempfile.TemporaryDirectory() as name:
        task = local_task(Path(name), train, questions)
        prompts = [instance.args[0] for instance in task.instances]
        stop = task.instances[0].args[1]["until"]
    content = {"lm_eval": lm_eval.__version__, "train": train, "test": questions, "stop": stop, "prompts": prompts}
    (out / "lm_eval_prompts.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
