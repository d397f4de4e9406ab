"""The paper on two failure modes (arXiv 2505.24333): claims, measurements, figures."""
