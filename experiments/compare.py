"""Compares finished or running experiments: settings, curves, metrics with error bars.

    jaxformer compare RUN RUN [RUN ...] [--plot=FILE.png]

  RUN          folders of runs of one task, two at least
  --plot=FILE  draws the learning curves (png, svg or pdf)
  --all        also shows metrics about speed and cost

Prints the fields in which the configs differ, the metrics side by side (mean +- standard error over
seeds), and each run's difference from the first one. A difference has its 95 % interval and a
verdict: above, below or cannot tell. Runs that share seeds are compared seed by seed. In Python,
`jaxformer.compare(run, other)` gives the same.
"""

try:
    import experiments  # noqa: F401 (first: sets how Ctrl-C ends the process)
except ModuleNotFoundError:
    import cli.activate  # noqa: F401 (puts this clone on the path, or exits with a hint)

import sys
from collections.abc import Sequence
from pathlib import Path

from jaxformer.core.errors import UserError
from jaxformer.report import figure_style
from jaxformer.runtime.command_line import Parser, command
from jaxformer.studies.compare import compare


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("folders", nargs="*", metavar="RUN")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--all", action="store_true")
    args = parser.parse_args(argv)
    if len(args.folders) < 2:
        raise UserError(f"give at least two run folders to compare, got {len(args.folders)}.")
    if args.plot:
        figure_style.check_file(args.plot, "--plot")
    comparison = compare(*args.folders)
    print(comparison.text(with_cost=args.all))
    for label, run in comparison.runs.items():
        if run.finished is None:
            print(f"{label} is not finished: no result.json yet")
    if args.plot and any(run.workdir.rows() for run in comparison.runs.values()):
        comparison.plot(args.plot)
        print(f"curves: {args.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
