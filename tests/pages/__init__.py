"""The commands of the documentation, typed as a reader types them.

`python -m tests.pages docs/quickstart.md` tries a page.
"""
