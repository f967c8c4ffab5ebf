"""From an exported model to programs for its targets, and their lineages."""
