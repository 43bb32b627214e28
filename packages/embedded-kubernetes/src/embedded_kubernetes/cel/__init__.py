"""CEL as the API server has it: expressions of match conditions and admission policies, and what Kubernetes adds."""
