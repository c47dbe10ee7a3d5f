"""Split CoNaLa's training file into five folds: write N/train.json and N/test.json for each fold N.

python folds.py CONALA FOLDER: all examples of a question and near-duplicates are in one fold. The folds
depend on the file only.
"""

import json
import random
import sys
from collections import defaultdict
from collections.abc import Hashable
from pathlib import Path

from attnlab.data.conala.dataset import Example, group_examples, parse

FOLDS = 5


def main(conala: str, folder: str) -> None:
    """Write the files."""
    text = Path(conala).read_text(encoding="utf-8")
    items = json.loads(text)
    for number, fold in enumerate(split(parse(text, name=conala))):
        target = Path(folder) / str(number)
        target.mkdir(parents=True, exist_ok=True)
        (target / "test.json").write_text(json.dumps([items[index] for index in sorted(fold)]))
        rest = [item for index, item in enumerate(items) if index not in fold]
        (target / "train.json").write_text(json.dumps(rest))


def split(examples: list[Example]) -> list[set[int]]:
    """Return the numbers of the examples of each fold; the next group is put into the smallest one."""
    members: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, group in enumerate(group_examples(examples)):
        members[group].append(index)
    groups = [*members.values()]
    random.Random(0).shuffle(groups)
    folds: list[set[int]] = [set() for _ in range(FOLDS)]
    for numbers in groups:
        min(folds, key=len).update(numbers)
    return folds


if __name__ == "__main__":
    main(*sys.argv[1:])
