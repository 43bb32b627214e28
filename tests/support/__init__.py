"""Helpers that tests share: builders of objects, worlds that run the product, virtual time, and outside systems."""
