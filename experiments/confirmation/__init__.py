"""Confirmation: rules frozen by a hash first, fresh seeds afterwards, one look.

    planning.py  chooses the rows that are run again, their numbers of seeds and their order
    plan.py      the plan: PLAN.json and its hashes
    runs.py      the runs of a plan with seeds that its hash draws, and their records
    judgement.py the verdict of each row on the new records: VERDICTS.json
    published.py the confirmations that the result pages show

A row is confirmed if it has its exploratory verdict again, reversed if it has the opposite one, and
otherwise not confirmed. The plan fixes the number of seeds, so that no run can be extended.
"""
