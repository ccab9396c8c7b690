"""flush(): what is evidence of a write once Redis may have forgotten it."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_DURABILITY, _LEDGER = "sessioncache/handle/flush_wait.py", "sessioncache/handle/unflushed_writes.py"
_EVIDENCE = "both_tiers/test_evidence.py::test_"
_ANOTHER = _EVIDENCE + "what_built_on_what_was_there_is_not_shown_by_another_that_did_the_same"
_DOUBTFUL = "scripts/test_claims.py::test_a_scope_that_is_to_be_compared_with_sql_is_not_said_to_be_flushed"

MUTATIONS = (
    Mutation(
        "an increment is shown by another's",
        "R11",
        _LEDGER,
        'code in b"IA" or expected',
        "expected",
        (f"{_ANOTHER}[flushed-increment]", f"{_ANOTHER}[flushed-append]"),
    ),
    Mutation(
        "an edit is shown by another's",
        "R11",
        _LEDGER,
        "expected != ANY or part.if_revision",
        "part.if_revision",
        (f"{_ANOTHER}[flushed-huge]", f"{_ANOTHER}[flushed-edit]", f"{_ANOTHER}[flushed-edit-away]"),
    ),
    Mutation(
        "an update of one revision is shown by another's",
        "R11",
        _LEDGER,
        ' or part.if_revision != b""',
        "",
        (f"{_ANOTHER}[flushed-if-revision]",),
    ),
    Mutation(
        "a later row shows an increment",
        "R11",
        _DURABILITY,
        "    if noted.exact:\n",
        "    if False:\n",
        (f"{_ANOTHER}[flushed-increment]",),
    ),
    Mutation(
        "another's increment holds this one",
        "R11",
        _DURABILITY,
        "if forgot and noted.exact:",
        "if False:",
        (f"{_ANOTHER}[hot-increment]",),
    ),
    Mutation(
        "what is done again stands for what was lost",
        "R11",
        _LEDGER,
        " and known.revision < revision and not noted.exact:",
        " and known.revision < revision:",
        (_EVIDENCE + "what_built_on_what_was_there_is_not_shown_by_doing_it_again[increment]",),
    ),
    Mutation(
        "what was lost of cleared keys is told",
        "R11",
        _LEDGER,
        '            one.forget(whole, ("whole",))\n',
        "            pass\n",
        (
            "unit/test_unflushed_writes.py::test_what_was_written_before_a_clear_in_another_incarnation_does_not_matter",
            _EVIDENCE + "what_was_lost_of_keys_that_were_cleared_since_does_not_matter[session]",
        ),
    ),
    Mutation(
        "what SQL was found to lack is said to be flushed",
        "R11",
        "sessioncache/hot/lua/flushed.lua",
        "local doubtful = h[4] or (",
        "local doubtful = (",
        (_DOUBTFUL + "[namespace]",),
    ),
    Mutation(
        "a namespace whose session SQL was found to lack is said to be flushed",
        "R11",
        "sessioncache/hot/lua/flushed.lua",
        " or (h[3] and call('HGET', base .. 'h:s' .. h[3], 'y'))",
        "",
        (_DOUBTFUL + "[session]",),
    ),
    Mutation(
        "another's touch holds this one",
        "R11",
        _DURABILITY,
        "in (pending.head, pending.revision)",
        ">= pending.head",
        (_EVIDENCE + "a_touch_is_not_shown_by_another[hot]",),
    ),
    Mutation(
        "what was written since denies a touch",
        "R11",
        _DURABILITY,
        "updated in (touched, decode_revision(pending.revision))",
        "updated == touched",
        (_EVIDENCE + "a_touch_is_shown_by_the_write_that_followed_it",),
    ),
)
