"""Reports: one HTML file that shows source, graphs and kernels side by side; graphs for other viewers."""
