"""Recording of requests that other programs send through convo.

`exchange` has the request and the response as a relay or a server reports them.
"""
