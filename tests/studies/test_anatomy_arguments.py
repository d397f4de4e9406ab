"""Wrong arguments of `jaxformer.anatomy` are one-line errors before anything is trained."""

import math

import pytest

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.models.decoder import decoder
from jaxformer.studies.anatomy import api, retraining
from jaxformer.studies.anatomy.subject import of_task
from jaxformer.tasks.retrieval import Retrieval


@pytest.mark.parametrize(
    "options, message",
    [
        ({"rates": ()}, r"rates must be positive numbers, got \(\)"),
        ({"rates": 0.01}, "rates must be positive numbers, got 0.01 and no list of them"),
        ({"rates": ("a",)}, "rates must be positive numbers"),
        ({"rates": (0.01, -1.0)}, "rates must be positive numbers"),
        ({"rates": (0.01, 0.01)}, "rates has a rate twice"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"steps": 2.5}, "steps must be a whole number, got 2.5"),
        ({"batch_size": 1.5}, "batch_size must be a whole number, got 1.5"),
        ({"budget": -1}, "budget must be above 0 seconds, got -1"),
        ({"budget": math.nan}, "budget must be above 0 seconds, got nan"),
        ({"during": 1}, "during must be at least 2, got 1"),
        ({"theory": 3}, "theory must be a function, got 3"),
        ({"executor": "slurm"}, "executor must be a function, got 'slurm'"),
    ],
)
def test_a_wrong_argument_is_a_one_line_error_before_the_first_training(options, message, capsys):
    with pytest.raises(UserError, match=message) as error:
        jaxformer.anatomy(Retrieval(3, 16), width=16, layers=1, heads=2, **options)
    assert "\n" not in str(error.value) and not capsys.readouterr().out


def test_the_number_of_heads_is_that_of_the_decoder(monkeypatch):
    """The same argument says of a published model whether its heads are measured."""
    seen = {}
    monkeypatch.setattr(api, "examine_training", lambda subject, **_: (seen.update(s=subject), 0))
    jaxformer.anatomy(Retrieval(3, 16), width=24, layers=1, heads=3)
    assert seen["s"].network.model.spec.heads == 3
    jaxformer.anatomy(Retrieval(3, 16), width=24, layers=1)
    assert seen["s"].network.model.spec.heads == 4


def test_sizes_beside_a_model_are_a_one_line_error():
    task = Retrieval(3, 16)
    model = decoder(**task.sizes, width=8, layers=1, heads=2, mlp_width=8)
    with pytest.raises(UserError, match="its own sizes: leave stepps, heads out, or the model"):
        jaxformer.anatomy(task, model, stepps=10, heads=2)


def test_a_theory_that_fails_after_the_trainings_loses_its_lines_alone():
    def theory(subject, params):
        raise ZeroDivisionError("no width\nat all")

    said: list[str] = []
    assert retraining.theory_lines(theory, None, None, said.append) == []  # type: ignore[arg-type]
    assert said == ["note: the theory has no lines: ZeroDivisionError: no width at all"]


def test_a_field_that_is_off_is_no_part_of_a_study():
    """A new field of decoders would otherwise train all members of older studies again."""
    task, spec = Retrieval(3, 16), dict(width=8, heads=2, layers=1)
    identity = of_task(task, steps=2, **spec).identity
    assert "width" in identity["model"] and "document_end" not in identity["model"]
    assert "document_end" in of_task(task, steps=2, document_end=1, **spec).identity["model"]
