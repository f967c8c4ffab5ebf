"""Training: graphs of derivatives, as AOTAutograd takes them, become programs that know whose derivatives they are."""
