"""Recordings of exchanges that convo did not make: requests of other clients and their responses.

Read first: `exchange`, the contract with a relay; `decoder`, which turns an exchange of any of the three protocols into
items of the Responses API; `placement`, which finds the conversation that a stateless request continues. `recorder`
writes the result to the store.
"""
