"""The verdict that pages print first, with what was fresh in its runs and the kind of a failure.

Fresh seeds with rules that were fixed before outrank the runs in which a claim was explored, so the
verdict of the confirmation comes first wherever it was made. The verdict of the first runs is its
footnote.
"""

from experiments.ledger import controlled
from experiments.ledger.confirmed import ONE_SEED, RECOMPUTED, Confirmed
from experiments.ledger.item import OURS
from experiments.ledger.ledger import Row
from experiments.ledger.rules import HELD, NOT_HELD, OPEN

EXPLORED = "explored only"
MAIN_POINT_HELD = "main point held, a detail did not"
# Kinds of "did not hold".
MISPRINT = "misprint or constant"
CONTRADICTION = "fails as stated"
REMARK = "a proof or a side remark fails as written"
ASYMPTOTIC = "asymptotic statement, which finite sizes cannot refute"
OTHER_SETTING = "smaller size, own threshold or other protocol"
READING = "our reading of a sentence that says less"
OWN_QUESTION = "our own question"
# Kinds in which the paper's own sentence fails, in its setting and at its sizes.
AS_STATED = (CONTRADICTION, REMARK)
# How many rows failed in which way: "7 by a misprint or a constant".
WAYS = {
    CONTRADICTION: "as stated",
    REMARK: "as written in a proof or a side remark",
    MISPRINT: "by a misprint or a constant",
    ASYMPTOTIC: "in an asymptotic statement, which finite sizes cannot refute",
    OTHER_SETTING: "at smaller sizes, by a threshold of ours or under another protocol",
    READING: "by our reading of a sentence that says less",
    OWN_QUESTION: "in a question of our own",
}
KINDS = {
    CONTRADICTION: "the sentence fails in the setting and at the sizes that the paper names.",
    REMARK: "the same, but of a step of a proof or of a remark beside the claim: the claim itself "
    "may be right.",
    MISPRINT: "a printed formula or number is wrong, and a corrected one holds.",
    ASYMPTOTIC: "our sizes are off by more than the rule allows, as the paper's limit itself "
    "predicts for them. This is no contradiction.",
    OTHER_SETTING: "networks are smaller than the paper's, the threshold is ours, or the protocol "
    "differs. An author may object to each.",
    READING: "our rule asks for more than the sentence, such as the converse of a condition.",
    OWN_QUESTION: "the paper does not claim it.",
}


def confirmation(row: Row) -> Confirmed | None:
    """The confirmation of a row if its new runs were made."""
    return row.confirmed if row.confirmed and row.confirmed.is_run else None


def verdict(row: Row) -> str:
    """The verdict of the fresh runs, or that of the first runs without any."""
    confirmed = confirmation(row)
    return confirmed.verdict if confirmed else row.verdict


def primary_verdict(row: Row) -> str:
    """The verdict of the rule that tests the main point of the claim."""
    if confirmed := confirmation(row):
        return confirmed.primary_verdict
    by_text = {finding.text: finding.verdict for finding in row.findings}
    return by_text.get(row.item.primary_rule, "")


def kind(row: Row) -> str:
    """The kind of a verdict "did not hold"; "" for other verdicts and for rows without a kind."""
    if verdict(row) != NOT_HELD:
        return ""
    return OWN_QUESTION if OURS in row.item.flags else row.item.failure


def failure(row: Row) -> str:
    """The meaning of "did not hold": "main point held, a detail did not; our own question"."""
    if verdict(row) != NOT_HELD:
        return ""
    detail = MAIN_POINT_HELD if primary_verdict(row) == HELD else ""
    return "; ".join(filter(None, (detail, kind(row))))


def fresh(row: Row) -> str:
    """The fresh part, such as "9 new seeds" or `EXPLORED`; "" for rows without a verdict."""
    if confirmed := confirmation(row):
        return confirmed.fresh
    return EXPLORED if row.verdict in (HELD, NOT_HELD, OPEN) else ""


def is_redrawn(row: Row) -> bool:
    """Whether several new seeds or data sets were drawn for the fresh verdict, with an error."""
    confirmed = confirmation(row)
    if confirmed is None or not confirmed.has_fresh_error:
        return False
    return not confirmed.fresh.startswith(ONE_SEED)


def footnote(row: Row) -> str:
    """The verdict of the first runs where the fresh ones have another, else ""."""
    confirmed = confirmation(row)
    if confirmed is None or confirmed.verdict == confirmed.exploratory:
        return ""
    return f"first runs: {confirmed.exploratory}"


def untrained(row: Row) -> str:
    """Which network lost without having been shown to be trained, by the rule that is printed.

    It is read from the records of the first runs, whose rates and steps the fresh ones repeat.
    """
    text, _ = decisive_numbers(row)
    versions = (row.item, *row.item.earlier)
    rule = next((item.rules[text] for item in versions if text in item.rules), None)
    return "" if rule is None else controlled.untrained_loser(rule, verdict(row), row.records)


def note(row: Row) -> str:
    """All that follows a verdict in brackets: "5 new seeds; main point held, a detail did not"."""
    return "; ".join(filter(None, (fresh(row), footnote(row), failure(row), untrained(row))))


def outcome(row: Row) -> str:
    """The outcome of a confirmation in words that are true of it; "-" if none is planned."""
    if row.confirmed is None:
        return "-"
    return "recomputed" if row.confirmed.fresh == RECOMPUTED else row.confirmed.outcome


def fresh_rules(row: Row) -> list[tuple[str, str, str]]:
    """(sentence, verdict, numbers) of each rule of a confirmation, in the order of the claim."""
    confirmed = confirmation(row)
    if confirmed is None:
        return []
    versions = (row.item, *row.item.earlier)
    order = [text for item in versions for text in item.rules]
    found = [(text, *values) for text, values in confirmed.rules.items()]
    return sorted(found, key=lambda rule: order.index(rule[0]) if rule[0] in order else len(order))


def decisive_numbers(row: Row) -> tuple[str, str]:
    """The sentence and the numbers of the rule behind the printed verdict; ("", "") without runs.

    Of several rules it is the primary one if that has the verdict, and else the first that has.
    """
    if confirmed := confirmation(row):
        judged, primary = fresh_rules(row), confirmed.primary
    else:
        judged = [(finding.text, finding.verdict, finding.numbers) for finding in row.findings]
        primary = row.item.primary_rule
    judged = [rule for rule in judged if rule[2]]
    decisive = [rule for rule in judged if rule[1] == verdict(row)]
    chosen = [rule for rule in decisive if rule[0] == primary] or decisive or judged
    return (chosen[0][0], chosen[0][2]) if chosen else ("", "")
