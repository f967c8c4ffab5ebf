"""What passes are made with: options, pipelines and their text, the rewriter, the check around every pass."""
