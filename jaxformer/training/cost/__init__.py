"""The cost of a run: floating-point operations, memory and time, before and after it.

memory.check_memory(phases)           estimates memory from shapes; compiles nothing
flops.matmul_flops(f, *arguments)     counts the matrix products of a call
prediction.print_prediction(..)       predicts operations, memory and time on this machine
throughput.Throughput(setup, length)  measures a run while it trains
"""
