"""The two papers on MixiT (arXiv 2506.01115 and its version B): claims, measurements, figures."""
