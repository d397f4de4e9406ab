"""The page docs/stats.md shows the numbers that its code gives."""

import ast
import contextlib
import io
import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/stats.md").read_text()


def test_the_values_and_texts_of_the_page_are_those_of_its_code():
    names, compared, printed = {}, 0, io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
            exec(compile(block, "docs/stats.md", "exec"), names)
            for line in block.splitlines():
                expression, _, shown = line.partition("  # ")
                with contextlib.suppress(ValueError, SyntaxError):
                    expected = ast.literal_eval(shown)
                    assert eval(expression, names) == expected, line
                    compared += 1
    assert compared == 7
    assert printed.getvalue() == "".join(re.findall(r"```text\n(.*?)```", PAGE, re.S))
