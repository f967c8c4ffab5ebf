"""How much an op of the ``fred`` dialect holds: IRDL wants a place for each operand and result, used or not."""

MAX_INPUTS = 24
MAX_OUTPUTS = 8
MAX_STATES = 16
