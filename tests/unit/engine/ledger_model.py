"""tests.support.ledger_model under its former name."""

from tests.support.ledger_model import *  # noqa: F403
