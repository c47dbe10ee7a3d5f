import subprocess
import sys

import pytest

CODE = """
import gc, sys
from attnlab.files.imports import faster_imports
with faster_imports():
    import torchmetrics
assert gc.isenabled()
print("scipy.signal" in sys.modules, "scipy.stats" in sys.modules, gc.get_freeze_count() > 100_000)
import scipy.signal
print(scipy.signal.convolve([1, 2], [1, 3]).tolist())
"""


@pytest.mark.slow
def test_scipy_signal_is_imported_only_where_it_is_used() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False False True", "[1, 5, 6]"]
