"""Token usage and cost: `counting` counts tokens, `models` knows prices and context windows."""
