"""Authentication and authorization of callers.

A verifier turns a bearer token into a `principal.Principal`. `authentication` runs the verifiers for a request.
`authorization` decides which primitives a principal may see and use. Verifiers of a project raise
`authentication.verifiers.AuthError`.
"""
