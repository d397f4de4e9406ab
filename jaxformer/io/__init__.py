"""Files of a run: atomic writes, locks, run folders, rows of metrics, checkpoints."""
