"""The paper on distributional associations (arXiv 2406.03068): claims, measurements, figures."""
