"""Experiments at the papers' own settings: rules fixed first, long runs afterwards.

    questions.py    the three experiments: what is asked, the cells, the controls, the order of runs
    plan.py         PLAN.json: all of this with a hash, committed before any run
    due.py          which runs are due, since some depend on what earlier ones found
    runs.py         jobs, records and curves
    __main__.py     the command: plan, draw, run, show

Seeds, jobs and records are those of `experiments.confirmation`.
"""
