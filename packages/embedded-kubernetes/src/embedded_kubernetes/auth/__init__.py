"""Authentication and authorization of the API, modeled on kube-apiserver 1.36.

`gate` runs the steps for a request in kube-apiserver's order: authenticate the user (`authentication`),
derive the request's attributes (`attributes`), impersonate (`impersonation`) and authorize (`rbac`).
`reviews` answers review objects by the same code. `escalation` prevents users from granting permissions that
they do not have.
"""
