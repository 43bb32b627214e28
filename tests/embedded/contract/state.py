"""State that a recorded line needs and that no kept request made.

The script behind a recording created some objects with requests that were not kept. Most can be told from the
answers: an object that an answer shows, or that a request names and a later answer shows, was created before.
`STATE` holds the rest: what no answer tells, by the name of the line that needs it.
"""

from __future__ import annotations

from typing import Any

#: Line name -> requests to send before it: (method, path, content type, body). `{pod}` stands for a plain pod.
STATE: dict[str, list[tuple[str, str, str, Any]]] = {
    # A budget refuses only for a pod that runs and that it covers; the pod itself is never shown.
    "evict guarded: 429": [
        (
            "POST",
            "/api/v1/namespaces/t/pods",
            "application/json",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "guard", "labels": {"app": "guard"}},
                "spec": {"containers": [{"name": "c", "image": "img"}]},
            },
        ),
        (
            "PATCH",
            "/api/v1/namespaces/t/pods/guard/status",
            "application/merge-patch+json",
            {"status": {"phase": "Running"}},
        ),
    ]
}

#: What is not served or not like the recording on purpose: line name -> why. Such a line is not compared.
LEFT_OUT: dict[str, str] = {}
