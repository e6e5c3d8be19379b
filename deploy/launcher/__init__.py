"""The launcher of one host's processes; deploy/baton is its command."""


class Refused(Exception):
    """A sentence for the operator; exit status 2."""
