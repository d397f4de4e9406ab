"""Figures of the papers: one module a paper, one function a figure."""
