"""Print the table of this folder's README from cross-validation.csv, which cross_validation.py writes."""

from pathlib import Path

import pandas as pd

from attnlab.report import tables

CROSS_VALIDATION = Path(__file__).with_name("cross-validation.csv")


def main() -> None:
    """Print the scores of all folds together, of the examples that chose nothing and of all, as Markdown."""
    data = pd.read_csv(CROSS_VALIDATION)
    data = data[data["fold"].str.startswith("all")].sort_values("fold", ascending=False, kind="stable")
    columns = {
        "way of decoding": data["way"],
        "examples": data["sentences"].astype(str),
        "CoNaLa BLEU over sentences": [
            f"{row.bleu:.1f} [{row.low:.1f}, {row.high:.1f}]" for row in data.itertuples()
        ],
        "CoNaLa exact match [%]": [f"{100 * share:.1f}" for share in data["exact_match"]],
        "length of outputs / references": [f"{ratio:.2f}" for ratio in data["length_ratio"]],
    }
    print(tables.markdown(pd.DataFrame(columns).set_index(["way of decoding", "examples"])))


if __name__ == "__main__":
    main()
