"""Memory that a process keeps for its next tensors."""

import subprocess
import sys

import pytest

CODE = """
import sys
from pathlib import Path
import numpy as np
from attnlab.training.environment import keep_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

if sys.argv[1] == "keep":
    keep_freed_memory()
before = resident()
block = np.ones(2**26, dtype=np.uint8)  # 64 MiB
del block
print(resident() - before > 2**25)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")
def test_a_freed_block_stays_in_the_process() -> None:
    command = [sys.executable, "-c", CODE]
    kept, returned = (
        subprocess.run([*command, mode], capture_output=True, text=True, check=True).stdout
        for mode in ("keep", "return")
    )
    assert (kept, returned) == ("True\n", "False\n")
