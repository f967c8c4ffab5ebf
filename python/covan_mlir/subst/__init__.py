"""Substitutions of tensor programs: operators as data, rules that are generated and proved for all sizes.

docs/superoptimiser.md says what is what.
"""
