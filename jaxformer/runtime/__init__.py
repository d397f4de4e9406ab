"""The process around a run: command lines, processes of a job, progress, figure style."""
