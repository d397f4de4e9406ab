"""The report of `jaxformer anatomy`: what each part of one transformer does.

api         `jaxformer.anatomy`: trains, judges and examines
sources     reads the task, config, run or model that the report is about
subject     the task, the network and the settings of its training
parts       the parts of a network, and the variants that train it without each of them
training    one compiled program that trains every variant
study       the next members to train within a budget, where a member is a variant at one seed and
            learning rate; `store` keeps the trained members
workers     trainings in several processes; `cluster_jobs` trains in jobs of Slurm
judge       decides each comparison with the ledger's statistic; `sentences` states the decided ones
theory      what the theories of the papers predict
examination what each part of a trained network does: on `pairs` of prompts, `inside` measures each
            `effect`, `layer_facts` describes the blocks, and `components` decides the effects
page        the HTML page (`page_inside`, `views`); `drawing` draws the network
report      the object that `jaxformer.anatomy` returns; `text_tables` formats its tables
"""
