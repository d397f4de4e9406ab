"""Studies: many trainings and looks inside, judged by `jaxformer.stats`.

compare    two or more runs of one task side by side
litmus     does a task need attention that looks at the content? Four variants of a decoder
anatomy    what does each part of one network do? Every part frozen, removed or trained alone; and
           `examine`, which trains nothing and looks inside
finetuning which parts of a published model need an update? Full updates and adapters of each part
budget     the time that a study has used
variants   the variants of a decoder: its token mixer and what stays frozen
"""
