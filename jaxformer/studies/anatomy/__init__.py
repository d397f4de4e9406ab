"""A study of one transformer: which of its parts must be trained, may stay random or can go?

api         `jaxformer.anatomy`: a task or a run is trained again, a published model is examined
retraining  trains each variant of a network within a budget; `findings` gathers what came out
sources     the door: a task, its text or a run becomes a `subject`
subject     the task, the network and the settings of its training
parts       the parts of a network, and the variants that train it without each of them
training    one compiled program that trains every variant
study       the next members to train within a budget, where a member is a variant at one seed and
            learning rate; `store` keeps the trained members
workers     trainings in several processes; an executor may train elsewhere, such as on a cluster
smallest    lets parts leave one after the other as long as the network is no worse
judge       decides each comparison by `jaxformer.stats`; `sentences` states the decided ones
examination `jaxformer.examine`: what each part of a trained network does. `specimens` is its door,
            where a network and its `pairs` of prompts meet; `inside` measures each effect with the
            errors of `effects`, `together` measures groups of parts, `labels` and `head_writes`
            name heads, `layer_facts` describes the blocks, and `components` decides the effects
            `finished` keeps what was measured before a stop
during      the parts at several steps of one training
page        the HTML page (`page_inside`, `page_during`); `drawing` draws the network
report      the object that `jaxformer.anatomy` returns; `content` is what it is about, and
            `text_tables` formats its tables
"""
