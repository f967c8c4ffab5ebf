"""From what the user has (a module, a function, an exported program, a file) to the torch dialect.

`capture` exports, `actions` makes the ledger, `signature` describes inputs and outputs, `importer` builds the IR.
"""
