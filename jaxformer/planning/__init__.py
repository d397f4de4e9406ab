"""Plans: the cost of a run on a machine, before it starts: memory, operations, links and time.

    targets.parse_target("v5e:4x4")           a machine, which may be absent
    compile_plan.plan_step(setup, ..)         a `Plan`, read from the program compiled for it
    prediction.print_prediction(phases, ..)   the same run on this machine, without a target
    published.shapes_only(task, config)       a published model by its config.json alone

`jaxformer.plan` is the front door. The room has another name because the import of a package
`jaxformer.plan` would put a module in the place of that function. What a running training measures
of itself is in `jaxformer.training.cost`.
"""
