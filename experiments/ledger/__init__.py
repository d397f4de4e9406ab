"""The ledger: records of runs, the rules of claims, statistics and verdicts."""
