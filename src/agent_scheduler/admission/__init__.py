"""Admission of objects that are created, changed or deleted: defaults and rejections.

Pure functions of the object and of the known state of the cluster. Kinds, rules and messages are Volcano's
(`pkg/webhooks/admission`).
"""
