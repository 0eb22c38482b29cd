"""A queue's counts at one instant, as a frozen value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stats:
    """Every message put is ready, in flight, waiting, dead or acked."""

    puts: int
    ready: int  # never delivered, or to be delivered again at once
    in_flight: int  # leased
    waiting: int  # given back, due later
    dead: int  # given up, kept
    gets: int  # deliveries, repeated ones included
    acks: int
    nacks: int
    rejects: int
    expired: int  # leases that ran out
    died: int  # leases that ended with their process
    recoveries: int  # transactions of dead or interrupted processes that were undone
    attached: int  # handles
