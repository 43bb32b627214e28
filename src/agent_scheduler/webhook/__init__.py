"""What a webhook of admission has beside its reviews: its certificate, those who are to trust it, and its picture of
the cluster."""
