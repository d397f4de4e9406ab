"""CPU seconds of a call of `jaxformer.train` that was, in whole or in part, made before.

    python benchmarks/second_call.py

The network is that of README's first block. Each line is a call in one process; the first process
begins with an empty cache of compiled programs, the second one with what the first left behind.
Both use a temporary folder, so that the cache of this machine is neither read nor written.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

RULES = ((".*/(query|key)/.*", "frozen"), (".*", "train"))
OTHER_RULES = ((".*/mlp/.*", "frozen"), (".*", "train"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for process in ("empty cache", "new process"):
            print(f"{process}:")
            environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": f"{folder}/programs"}
            environment |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
            command = [sys.executable, __file__, f"{folder}/run"]
            done = subprocess.run(
                command, env=environment, check=True, stdout=subprocess.PIPE, text=True
            )
            for name, seconds in json.loads(done.stdout.splitlines()[-1]).items():
                print(f"  {name:42} {seconds:5.1f}")


def measure(workdir: Path) -> dict[str, float]:
    """Returns {what was called: CPU seconds}, in the order of the calls."""
    seconds: dict[str, float] = {}

    def timed(name: str, call: Callable[[], object]) -> None:
        began = time.process_time()
        call()
        seconds[name] = time.process_time() - began

    timed("import", lambda: __import__("jaxformer.models.decoder"))
    import numpy as np

    import jaxformer
    from jaxformer.models.decoder import decoder
    from jaxformer.tasks import Arrays

    digits = np.random.default_rng(0).integers(0, 10, (5000, 4))
    task = Arrays(digits, digits.max(1))

    def train(rules=RULES, **changes):
        model = decoder(**task.sizes, width=32, layers=1, heads=2, mlp_width=128)
        options = dict(steps=200, learning_rate=1e-2, seeds=2, progress=False) | changes
        return jaxformer.train(task, model, rules, **options)

    timed("first call", train)
    timed("the same call again", train)
    timed("another learning rate", lambda: train(learning_rate=3e-3))
    timed("other seeds", lambda: train(seeds=[5, 7]))
    timed("another number of steps", lambda: train(steps=300))
    timed("this number again", lambda: train(steps=300))
    timed("another rule", lambda: train(OTHER_RULES))
    timed("this rule again", lambda: train(OTHER_RULES))
    timed("a run with a folder", lambda: train(workdir=workdir))
    timed("the finished run called again", lambda: train(workdir=workdir))
    return seconds


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(Path(sys.argv[1]))))
    else:
        main()
