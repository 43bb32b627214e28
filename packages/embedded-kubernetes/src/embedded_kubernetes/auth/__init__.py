"""Who asks, and may they: authentication and authorization of the API, after kube-apiserver 1.36.

`gate` is what a request passes, in a real server's order: who is it (`authentication`), what does it ask for
(`attributes`), as whom (`impersonation`), may that user (`rbac`). `reviews` answers the same questions when they are
put as objects, and `escalation` keeps who writes roles from granting more than they have.
"""
