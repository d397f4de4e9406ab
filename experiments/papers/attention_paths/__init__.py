"""The paper on attention paths (arXiv 2405.15926): claims, measurements, figures."""
