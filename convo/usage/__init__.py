"""Token usage and cost.

`counting` counts tokens, `cost` has the usage of a response and its cost, `model_info` prices and context windows.
"""
