"""Random sequences of answers and user actions, against servers that refuse what the real APIs refuse."""
