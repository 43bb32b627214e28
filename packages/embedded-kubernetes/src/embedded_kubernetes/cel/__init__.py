"""CEL for match conditions and admission policies, with the libraries that Kubernetes adds to the language."""
