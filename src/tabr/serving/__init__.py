"""A fitted model as a service over HTTP.

In: a model file, the address of a store, and requests. Out: predictions, explanations,
and changes of the candidates that are kept before they are acknowledged.
"""
