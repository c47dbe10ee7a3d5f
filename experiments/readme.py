"""Put what a command printed into a README, between its two marks: … | python readme.py FOLDER/README.md"""

from __future__ import annotations

import sys
from pathlib import Path

BEGIN, END = "<!-- made by its command -->\n", "<!-- until here -->\n"


def main(name: str) -> None:
    printed = sys.stdin.read().strip()
    if not printed:
        sys.exit(f"{name} stays as it is: nothing was printed")
    path = Path(name)
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{name} has no place for it: write {BEGIN.strip()} and {END.strip()}, a line each")
    path.write_text(f"{before}{BEGIN}\n{printed}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
