"""What becomes of an object that is to be made, changed or deleted: defaults for it, or a refusal.

Pure functions of the object and of what is known of the cluster. Kinds and rules are Volcano's
(`pkg/webhooks/admission`), and so are the words of refusals.
"""
