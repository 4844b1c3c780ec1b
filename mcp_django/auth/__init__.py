"""Who calls, and what they may do.

A verifier turns a bearer token into a `principal.Principal`; `authenticate` runs the verifiers for a request;
`policy` decides what a principal may see and use. Verifiers of a project raise `verifiers.AuthError`.
"""
