"""Print the table and the comparisons of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the run directories, write results.csv first.
"""

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent

if __name__ == "__main__":
    runpy.run_path(str(HERE.parent / "gain_of_attention.py"))["summarise"](HERE, *sys.argv[1:])
