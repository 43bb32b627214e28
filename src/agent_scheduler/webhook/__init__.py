"""The admission webhook's certificate, its trusted authorities, and its view of the cluster."""
