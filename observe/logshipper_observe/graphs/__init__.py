"""Curves over a chosen X: points, axes, graphs in a terminal and as PNG."""
