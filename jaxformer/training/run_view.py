"""`Run`: the scores, parameters and curves of a run, in memory or in a folder."""

import base64
import html
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.core.text_format import number, with_error
from jaxformer.io.run_folder import Workdir
from jaxformer.models.model import Params
from jaxformer.report import figure_style
from jaxformer.report.html import table
from jaxformer.training import curves
from jaxformer.training.result import Result
from jaxformer.training.run import Trained


@dataclass(frozen=True)
class Run:
    """A run that `jaxformer.train` returns or `jaxformer.open` reads.

    Members are ordered by learning rate, then by seed.
    """

    name: str  # the name of the task or the config
    workdir: Workdir = field(repr=False)
    step: int
    finished: Result | None  # None if the run was stopped
    members: tuple[tuple[int, float], ...]  # (seed, learning rate) of each member
    is_chosen: tuple[bool, ...]  # for each member, whether it has the chosen learning rate
    all_params: Callable[[], Any]  # returns the parameters of all members along a leading axis
    trained: Trained | None = None  # None if the run was read from a folder

    @property
    def folder(self) -> Path | None:
        """The folder of the run; None if it was not saved."""
        return self.workdir.path

    @property
    def config(self) -> dict[str, Any]:
        """The config of the run, with all defaults."""
        return self.workdir.read("config.json")["config"]

    @property
    def result(self) -> Result:
        """Test scores at the chosen learning rate over the seeds, and the scores of baselines."""
        if self.finished is None:
            raise UserError(
                f"the run was stopped at step {self.step} of {self.config['train']['steps']}: it "
                "has no result. The same call or command resumes it if it names a workdir; without "
                "one it starts from step 0."
            )
        return self.finished

    @property
    def params(self) -> Params:
        """The parameters of the first seed at the chosen learning rate."""
        return self.member(self.chosen()[0])

    def member(self, i: int) -> Params:
        """Returns the parameters of member i."""
        n = len(self.is_chosen)
        if not 0 <= i < n:
            raise UserError(f"the run has members 0 to {n - 1}, got {i}.")
        return jax.tree.map(lambda leaf: leaf[i], self.all_params())

    def chosen(self) -> list[int]:
        """Returns the members with the learning rate that is best in validation.

        Before the first validation these are the members with the first rate.
        """
        return [i for i, is_chosen in enumerate(self.is_chosen) if is_chosen]

    @property
    def curves(self) -> dict[str, np.ndarray]:
        """The logged numbers: {"step": (rows,), "loss": (rows, members), ..}.

        "validation_step" belongs to the arrays "validation_..", and "signal_step" to the arrays
        "signal_.." of shape (rows, members, layers).
        """
        rows = self.workdir.rows()
        training = [row for row in rows if "loss" in row]
        names = training[0] if training else ("step", "loss")  # stopped before the first row
        arrays = {name: np.array([row[name] for row in training], float) for name in names}
        arrays |= _arrays_of_rows("validation", rows)
        signal = _arrays_of_rows("signal", rows)
        return arrays | (signal if signal["signal_step"].size else {})

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The logged numbers, one dict for each step and member: `pandas.DataFrame(run.rows)`.

        A dict has step, seed and learning_rate, and what was logged at this step: loss,
        gradient_norm, validation_accuracy, .. Signals of layers are in `curves` only.
        """
        rows: dict[tuple[int, int], dict[str, Any]] = {}
        for logged in self.workdir.rows():
            values = {name: value for name, value in logged.items() if np.ndim(value) == 1}
            for name, value in logged.get("validation", {}).items():
                values[f"validation_{name}"] = value
            for i, (seed, rate) in enumerate(self.members):
                member = {"step": logged["step"], "seed": seed, "learning_rate": rate}
                row = rows.setdefault((logged["step"], i), member)
                row |= {name: float(value[i]) for name, value in values.items()}
        return list(rows.values())

    def plot(self, file: str | Path | None = None) -> Any:
        """Draws loss and validation accuracy of the chosen members, with the trivial predictors'.

        Args:
            file: where to save the figure (png, pdf or svg); not saved if None.

        Returns:
            A matplotlib figure.
        """
        baselines = curves.trivial_lines(self.finished.as_json()) if self.finished else {}
        rows, chosen = {self.name: self.workdir.rows()}, {self.name: self.is_chosen}
        figure = curves.curves(rows, baselines, chosen, figure_style.notebook_figure())
        if file is not None:
            figure_style.save(figure, Path(file))
        return figure

    def __repr__(self) -> str:
        where = f" in {self.folder}" if self.folder else ""
        if self.finished is None:
            return f"Run({self.name}, stopped at step {self.step}{where})"
        means = [
            f"{name} {value.mean:.4g}{self._guessing(name)}"
            for name, value in self.finished.metrics.items()
            if name in ("accuracy", "loss")
        ]
        return f"Run({', '.join([self.name, *means])}, {self.step} steps{where})"

    def _guessing(self, score: str) -> str:
        """The best trivial predictor beside a score, because .04 may be good and .6 bad."""
        assert self.finished is not None
        is_loss = score == "loss"
        scores = {
            name: value
            for name, value in self.finished.baselines.items()
            if name.endswith("_loss") == is_loss
        }
        if not scores:
            return ""
        best = (min if is_loss else max)(scores, key=lambda name: scores[name])
        return f" ({best.replace('_', ' ')} {scores[best]:.4g})"

    def _repr_html_(self) -> str:
        """Returns the curves and a table of the scores, which a notebook displays."""
        parts = [f"<p>{html.escape(repr(self))}</p>"]
        if any("loss" in row for row in self.workdir.rows()):
            png = io.BytesIO()
            self.plot().savefig(png, format="png", dpi=100)
            picture = base64.b64encode(png.getvalue()).decode()
            parts.append(f'<img alt="learning curves" src="data:image/png;base64,{picture}">')
        if self.finished is not None:
            parts.append(_html_table(self.finished))
        return "\n".join(parts)


def run_of(trained: Trained, workdir: Workdir, result: Result | None) -> Run:
    """Returns the run of a training that has ended."""
    session, state = trained.session, trained.state
    return Run(
        name=type(session.setup.task).__name__,
        workdir=workdir,
        step=int(state.step),
        finished=result,
        members=tuple(session.setup.population.members),
        is_chosen=tuple(session.chosen(state)),
        all_params=lambda: trained.params,
        trained=trained,
    )


def _arrays_of_rows(kind: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Returns the arrays of the rows with an entry `kind`, and their steps."""
    kind_rows = [row for row in rows if kind in row]
    arrays = {f"{kind}_step": np.array([row["step"] for row in kind_rows])}
    for name in kind_rows[0][kind] if kind_rows else ():
        arrays[f"{kind}_{name}"] = np.array([row[kind][name] for row in kind_rows], float)
    return arrays


def _html_table(result: Result) -> str:
    """Returns an HTML table of a result."""
    lines = [
        (name, with_error(mean.mean, mean.sem), str(mean.n))
        for name, mean in result.metrics.items()
    ]
    lines += [(f"baseline {name}", number(value), "") for name, value in result.baselines.items()]
    heads = ("score", "mean &plusmn; standard error", "seeds")
    return table(heads, [tuple(map(html.escape, line)) for line in lines])
