"""Write small data for `make all QUICK=1`: python quick_data.py FOLDER"""

from __future__ import annotations

import json
import sys
from pathlib import Path

WORDS = ("list", "string", "file", "array", "dict", "number", "column", "date", "path", "key")
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight")


def main(folder: str) -> None:
    """Write 80 sentence pairs and 80 examples in CoNaLa's form."""
    combinations = [(word, number) for word in WORDS for number in NUMBERS]
    pairs = (
        f"I see {number} {word}s here.\tIch sehe hier {number} {word}e.\n" for word, number in combinations
    )
    (Path(folder) / "pairs.txt").write_text("".join(pairs))
    examples = [
        {
            "intent": f"how to get {number} of {word} `{word}_{number}`",
            "rewritten_intent": f"get item {number} of {word} `{word}_{number}`",
            "snippet": f"{word}_{number}[{position}] + {number}({word})",
            "question_id": 10 * position + len(word),
        }
        for position, (word, number) in enumerate(combinations)
    ]
    (Path(folder) / "conala.json").write_text(json.dumps(examples))


if __name__ == "__main__":
    main(*sys.argv[1:])
