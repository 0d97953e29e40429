"""The Responses and Conversations API as a library over a store and models.

Read `endpoint` (the methods), then `turn` (one streamed response) and `background`.
"""
