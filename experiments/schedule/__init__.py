"""The scheduler: plans runs, estimates their times, and executes them here or on a cluster."""
