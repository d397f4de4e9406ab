"""The relation that a rule requires of its printed numbers, so that a printed row reads true.

A rule says left > right + by, but its numbers begin with the measured side. A rule whose left side
is a constant, such as .1 > noise, prints "0.047 against 0.1" and has to say "below".
"""

from experiments.ledger import headline
from experiments.ledger.ledger import Row
from experiments.ledger.rules import Rule


def required(rule: Rule) -> str:
    """The required relation of the printed numbers, such as "above by more than 0.2"."""
    if rule.within:
        return f"within {rule.by:g}"
    side, opposite = ("above", "below") if rule.left.cell else ("below", "above")
    if rule.by < 0:
        return f"at most {-rule.by:g} {opposite}"
    return f"{side} by more than {rule.by:g}" if rule.by else side


def by_sentence(row: Row) -> dict[str, str]:
    """The requirement of each rule and check of a row, also of rules that only a plan holds."""
    versions = (*row.item.earlier, row.item)
    rules = [pair for item in versions for pair in (*item.rules.items(), *item.checks.items())]
    return {text: required(rule) for text, rule in rules}


def with_requirement(numbers: str, requirement: str) -> str:
    """Returns a text such as "0.047 ± 0.004 against 0.1, required below"."""
    return f"{numbers}, required {requirement}" if numbers else ""


def decisive_rule(row: Row) -> Rule | None:
    """The rule behind a row's printed verdict, None without runs; a plan may hold an older one."""
    sentence, _ = headline.decisive_numbers(row)
    versions = (row.item, *row.item.earlier)
    return next((item.rules[sentence] for item in versions if sentence in item.rules), None)


def decisive_text(row: Row) -> str:
    """The numbers of the rule behind a row's printed verdict, with what it requires; or ""."""
    sentence, numbers = headline.decisive_numbers(row)
    return with_requirement(numbers, by_sentence(row).get(sentence, ""))
