"""An error knows the setting that it speaks of, and each caller names it in its own language."""

import pytest

from jaxformer.core.errors import UserError, check_range, setting
from jaxformer.runtime.command_line import Parser, command

TOO_SMALL = f"{setting('train.steps')} must be at least 1, got 0; see {setting('workdir')}."


def test_python_names_the_argument_and_the_error_has_the_field():
    error = UserError(TOO_SMALL)
    assert str(error) == "steps must be at least 1, got 0; see workdir."
    assert error.field == "train.steps"
    assert str(UserError(f"{setting('n_seeds')} is 0")) == "seeds is 0"
    assert UserError("no field at all").field == ""


@pytest.mark.parametrize(
    "flags, fields, expected",
    [
        ((), True, "--config.train.steps must be at least 1, got 0; see workdir."),
        (("--steps", "--workdir"), True, "--steps must be at least 1, got 0; see --workdir."),
        (("--workdir",), False, "steps must be at least 1, got 0; see --workdir."),
    ],
)
def test_a_command_names_its_own_flag(flags, fields, expected, capsys):
    @command
    def main(argv):
        parser = Parser("about", fields=fields)
        for flag in flags:
            parser.add_argument(flag)
        parser.parse_args(argv)
        raise UserError(TOO_SMALL)

    assert main([]) == 2
    assert capsys.readouterr().err == f"error: {expected}\n"


def test_a_setting_in_a_check_is_named_too():
    with pytest.raises(UserError, match=r"^warmup must be at least 0, got -1\.$") as error:
        check_range(setting("optim.warmup"), -1, 0)
    assert error.value.field == "optim.warmup"
