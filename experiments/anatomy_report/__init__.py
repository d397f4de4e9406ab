"""The report of `jaxformer anatomy`: what each part of one transformer does.

api         `jaxformer.anatomy`: trains, judges and examines
sources     reads the task, config, run or model that the report is about
subject     the task, the network and the settings of its training
parts       the parts of a network, and the variants that train it without each of them
training    one compiled program that trains every variant
study       which variant is trained next, within a budget; `store` keeps the trained members
workers     trainings in several processes; `cluster_jobs` trains in jobs of Slurm
judge       decides each comparison with the ledger's statistic; `sentences` states the decided ones
theory      what the theories of the papers predict
examination what each part of a trained network does: `pairs` of prompts, the effects in `inside`
            and `effect`, `layer_facts`, and in `components` the effects that are decided
page        the HTML page (`page_inside`, `views`); `drawing` has the picture of the network
report      the object that `jaxformer.anatomy` returns; `text_tables` has its text
"""
