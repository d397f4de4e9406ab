"""Time and memory of reading many records and comparing the result pages.

    python benchmarks/many_records.py            10,000 records
    python benchmarks/many_records.py 1000       fewer

The benchmark copies the records of results/ with other seeds into a temporary folder. Then it reads
the folder and renders the pages, as `report.py --check` does.

On a Xeon, 10,000 records take 38 CPU seconds (35 to read, 3 to render) and 475 MB. An earlier
version loaded the config of each record and kept its curves; it took 199 seconds and 1.45 GB.
"""

import itertools
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

from experiments import report
from experiments.ledger import read, validate_record, write
from experiments.ledger.record import run_name
from jaxformer import build
from jaxformer.io.run_folder import config_hash

FIRST_SEED = 1000  # seeds of copies start here; records of results/ have smaller ones


def main(n: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy_records(Path(folder), n)
        wall_start, start = time.perf_counter(), time.process_time()
        records, problems = read.load(Path(folder))
        loaded = time.process_time()
        report.render(records, problems)
        end = time.process_time()
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    stale = sum(bool(record.stale) for record in records)
    print(f"{len(records)} records, {len(problems)} unusable, {stale} stale")
    print(f"read {loaded - start:.1f} CPU s, rendered {end - loaded:.1f} CPU s")
    print(f"wall {time.perf_counter() - wall_start:.1f} s, peak memory {megabytes:.0f} MB")


def copy_records(folder: Path, n: int) -> None:
    """Writes n records: those of results/, then copies of them with other seeds."""
    files = sorted(write.RESULTS.rglob("*.json"))
    for i, file in itertools.islice(enumerate(itertools.cycle(files)), n):
        content = json.loads(file.read_text())
        if i >= len(files):
            seed = FIRST_SEED + i // len(files)
            content["config"]["seed"] = seed
            content["overrides"] = content["overrides"] | {"seed": str(seed)}
            content["config_hash"] = config_hash(build.config_identity(content["config"]))
            content["sum"] = validate_record.sum_of(content)
        name = run_name(content["config"], content["config_hash"])
        (folder / f"{name}.json").write_text(json.dumps(content))
        for suffix in write.SUFFIXES[1:]:
            companion = write.companion(file, suffix)
            if companion.exists() and not (folder / f"{name}{suffix}").exists():
                (folder / f"{name}{suffix}").symlink_to(companion)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
