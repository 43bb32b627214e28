"""Checks of pods in the words of Kubernetes: names (`util/validation`), messages (`field.Error`), and pod templates."""
