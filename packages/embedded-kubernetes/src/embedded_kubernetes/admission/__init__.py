"""Admission: changes and rejects writes after authorization and before they are stored.

`plugins` has the admission plugins that are compiled into kube-apiserver. `attributes`, `configured`,
`matching`, `webhooks` and `policies` implement webhook configurations and admission policies.
"""
