"""Word problems in GSM8K's format, written by this project: the questions that the laptop's tiny models can answer.

python -m pdkit.laptop.questions        writes questions/test.jsonl and questions/shots.jsonl again, byte for byte
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

from pdkit.files import write_text

FOLDER = Path(__file__).parent / "questions"
SEED = 20
TEST_QUESTIONS = 32
SHOTS = 5

NAMES = (
    "Amira Boris Clara Diego Edith Fatou Georg Hana Imre Jonas Kemal Lotte Marek Noemi Orla Pavel Rania Sven Tamar Vito"
)
THINGS = (
    "baskets buttons candles drums frames gloves helmets kites lanterns marbles masks pots ribbons shields spoons tiles"
)

Problem = dict[str, str]
"""One line of a data file: `question` and `answer`, the answer ending with `#### NUMBER`."""


def _sold(pick: random.Random, name: str, things: str) -> tuple[str, list[str], int]:
    boxes, each, morning, evening = (pick.randint(*limits) for limits in ((4, 9), (12, 30), (5, 20), (5, 20)))
    total, gone = boxes * each, morning + evening
    question = (
        f"{name} brings {boxes} boxes of {things} to the market, and every box holds {each} {things}. In the "
        f"morning {morning} {things} are sold, in the evening {evening} more. How many {things} does {name} take "
        f"back home?"
    )
    return (
        question,
        [
            f"{name} brings {boxes} * {each} = {total} {things}.",
            f"Together {morning} + {evening} = {gone} {things} are sold.",
            f"{name} takes {total} - {gone} = {total - gone} {things} back home.",
        ],
        total - gone,
    )


def _earned(pick: random.Random, name: str, things: str) -> tuple[str, list[str], int]:
    first, second, price, cost = (pick.randint(*limits) for limits in ((10, 40), (10, 40), (2, 9), (3, 18)))
    total = first + second
    question = (
        f"On Monday {name} paints {first} {things}, and on Tuesday another {second}. A shop pays {price} dollars "
        f"for each of the {things}, but {name} has to spend {cost} dollars on paint. How many dollars does {name} "
        f"keep in the end?"
    )
    return (
        question,
        [
            f"{name} paints {first} + {second} = {total} {things}.",
            f"The shop pays {total} * {price} = {total * price} dollars.",
            f"After the paint {total * price} - {cost} = {total * price - cost} dollars are kept.",
        ],
        total * price - cost,
    )


def _shared(pick: random.Random, name: str, things: str) -> tuple[str, list[str], int]:
    friends, each, own, lost = (pick.randint(*limits) for limits in ((3, 8), (6, 25), (30, 60), (2, 5)))
    total = friends * each
    question = (
        f"{name} owns {own} {things} and finds {total} more in the cellar. The {total} found ones are shared "
        f"equally among {friends} cousins, and {name} gives each cousin {lost} of the own ones too. How many "
        f"{things} does a cousin get?"
    )
    return (
        question,
        [
            f"Each cousin gets {total} / {friends} = {each} of the found {things}.",
            f"With the own ones it is {each} + {lost} = {each + lost} {things}.",
        ],
        each + lost,
    )


def _filled(pick: random.Random, name: str, things: str) -> tuple[str, list[str], int]:
    rows, columns, broken, spare = (pick.randint(*limits) for limits in ((5, 15), (6, 20), (2, 15), (20, 90)))
    places, needed = rows * columns, rows * columns + broken
    question = (
        f"A wall has {rows} rows with {columns} places for {things} in each row. While filling it {name} breaks "
        f"{broken} {things} and must replace them; afterwards {spare} {things} remain. How many {things} did "
        f"{name} have at first?"
    )
    return (
        question,
        [
            f"The wall takes {rows} * {columns} = {places} {things}.",
            f"With the broken ones {places} + {broken} = {needed} {things} are used.",
            f"At first there were {needed} + {spare} = {needed + spare} {things}.",
        ],
        needed + spare,
    )


def _doubled(pick: random.Random, name: str, things: str) -> tuple[str, list[str], int]:
    start, added, taken = (pick.randint(*limits) for limits in ((8, 60), (3, 30), (2, 16)))
    total = 2 * start + added
    question = (
        f"A drawer holds {start} {things}. Over the summer {name} doubles that number and then adds {added} "
        f"{things} from a flea market, but {taken} of all those {things} turn out to be broken. How many good "
        f"{things} are in the drawer?"
    )
    return (
        question,
        [
            f"Doubled there are 2 * {start} = {2 * start} {things}.",
            f"With the flea market it is {2 * start} + {added} = {total} {things}.",
            f"Of these {total} - {taken} = {total - taken} {things} are good.",
        ],
        total - taken,
    )


KINDS: tuple[Callable[[random.Random, str, str], tuple[str, list[str], int]], ...] = (
    _sold,
    _earned,
    _shared,
    _filled,
    _doubled,
)


def make_problem(pick: random.Random) -> tuple[Problem, int]:
    """One problem and its result."""
    kind, name, things = pick.choice(KINDS), pick.choice(NAMES.split()), pick.choice(THINGS.split())
    question, steps, result = kind(pick, name, things)
    return {"question": question, "answer": "\n".join([*steps, f"#### {result}"])}, result


def make_problems(count: int, seed: int = SEED) -> list[Problem]:
    """`count` (a few dozen) problems of which no two have the same result.

    Different results keep luck small: a model that mistakes one question for another is wrong.
    """
    pick = random.Random(seed)  # noqa: S311  (the same problems everywhere, not secrets)
    problems: dict[int, Problem] = {}
    while len(problems) < count:
        problem, result = make_problem(pick)
        problems.setdefault(result, problem)
    return list(problems.values())


def read_problems(name: str) -> list[Problem]:
    """The problems of `test` or `shots`, as shipped."""
    lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def main() -> None:
    """Write the two data files."""
    problems = make_problems(SHOTS + TEST_QUESTIONS)
    for name, part in (("shots", problems[:SHOTS]), ("test", problems[SHOTS:])):
        lines = [json.dumps(problem) + "\n" for problem in part]
        write_text(FOLDER / f"{name}.jsonl", "".join(lines))


if __name__ == "__main__":
    main()
