"""Ladders: does an effect grow or vanish as networks grow towards the paper's size?

    rule.py       rules about a trend, such as "grows" or "stays above .2"
    ladder.py     a ladder: a quantity, its sizes, its rule, the paper's size
    plan.py       PLAN.json: all ladders and runs with a hash, committed before any run
    runs.py       jobs and records of a plan's runs, cheapest size first
    judgement.py  the numbers and the verdict of each ladder
    table.py      the table and the sentences that people read
    picture.py    the effect against the size

The statistics of a line are in `jaxformer.stats.trend`, and the ladders of a paper are data in
`experiments/papers/PAPER/ladders.py`.
"""
