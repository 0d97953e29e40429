"""Third-party clients of `convo serve`, which use it like any other Responses API."""
