"""All mutations.  Whoever adds a guard adds the mutation that takes it out."""

from __future__ import annotations

from tests.mutants.catalogue import (
    batching,
    client,
    commands,
    doctoring,
    ending,
    erasing,
    flushing,
    forgetting,
    hydrating,
    idling,
    leasing,
    listing,
    lives,
    outages,
    reading,
    records,
    spaces,
    surface,
    tool,
    vitals,
    watching,
    writing,
)
from tests.mutants.mutation import Mutation

MUTATIONS: tuple[Mutation, ...] = (
    *writing.MUTATIONS,
    *flushing.MUTATIONS,
    *hydrating.MUTATIONS,
    *forgetting.MUTATIONS,
    *listing.MUTATIONS,
    *lives.MUTATIONS,
    *ending.MUTATIONS,
    *client.MUTATIONS,
    *commands.MUTATIONS,
    *spaces.MUTATIONS,
    *leasing.MUTATIONS,
    *erasing.MUTATIONS,
    *watching.MUTATIONS,
    *vitals.MUTATIONS,
    *doctoring.MUTATIONS,
    *batching.MUTATIONS,
    *reading.MUTATIONS,
    *records.MUTATIONS,
    *tool.MUTATIONS,
    *idling.MUTATIONS,
    *surface.MUTATIONS,
    *outages.MUTATIONS,
)
