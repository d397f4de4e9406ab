"""The report of `jaxformer anatomy`: what each part of one transformer does.

subject     the task, the network and the settings of its training
parts       the parts of a network, and the variants that train it without each of them
training    one compiled program that trains every variant
plan        which variant is trained next, within a budget
judge       decides each comparison with the ledger's statistic
sentences   states the decided comparisons
theory      what the theories of the papers predict
inside      what each part of a trained network does (effect, pairs)
page        the HTML page; drawing has the picture of the network
report      the object that `jaxformer.anatomy` returns
"""
