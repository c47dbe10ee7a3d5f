"""Write small data for `make all QUICK=1`: python quick_data.py FOLDER"""

import json
import sys
from pathlib import Path

WORDS = ("list", "string", "file", "array", "dict", "number", "column", "date", "path", "key")
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight")


def main(folder: str) -> None:
    """Write 80 sentence pairs, also as aligned files, and 80 examples in CoNaLa's form."""
    combinations = [(word, number) for word in WORDS for number in NUMBERS]
    english = [f"I see {number} {word}s here." for word, number in combinations]
    german = [f"Ich sehe hier {number} {word}e." for word, number in combinations]
    pairs = "".join(f"{source}\t{target}\n" for source, target in zip(english, german, strict=True))
    (Path(folder) / "pairs.txt").write_text(pairs)
    for language, sentences in (("de", german), ("en", english)):
        for split, chosen in (("train", sentences[:64]), ("val", sentences[64:])):
            (Path(folder) / f"{split}.{language}").write_text("\n".join(chosen) + "\n")
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
