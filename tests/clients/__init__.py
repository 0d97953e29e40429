"""Programs of others that speak to `convo serve`: they know nothing of convo and may not notice it."""
