"""Models in fewer bits: calibrated, converted, and measured beside themselves in float."""
