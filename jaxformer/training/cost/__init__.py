"""The cost of a run here: memory before it starts, operations, and speed while it trains.

    memory.check_memory(phases)           estimates memory from shapes; compiles nothing
    flops.matmul_flops(f, *arguments)     counts the matrix products of a call
    throughput.Throughput(setup, length)  measures a run while it trains

The forecasts of `jaxformer.planning`, for machines that may be absent, are made of these.
"""
