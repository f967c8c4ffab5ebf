"""Which site performs which action: the relation, what became of every action, and what is told of both."""
