"""The agent tool: what a model can name, and what it is told."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_ARGUMENTS = "sessioncache/tool/arguments.py"
_REPLIES = "sessioncache/tool/replies.py"
_WRONG = "tool/test_arguments.py::test_what_is_wrong_is_refused_by_name"

MUTATIONS = (
    Mutation(
        "unknown arguments ignored",
        "R20",
        _ARGUMENTS,
        "    if unknown:\n",
        "    if False:\n",
        (_WRONG,),
    ),
    Mutation(
        "clear takes a key",
        "R20",
        _ARGUMENTS,
        '        if name not in taken and arguments.get(name) not in (None, ""):\n',
        "        if False:\n",
        (_WRONG,),
    ),
    Mutation(
        "values of other types stored",
        "R19",
        _ARGUMENTS,
        "    if type(value) is not str:\n",
        "    if False:\n",
        (_WRONG,),
    ),
    Mutation(
        "an argument named twice accepted",
        "R20",
        _ARGUMENTS,
        "    if len(found) < len(pairs):\n",
        "    if False:\n",
        ("tool/test_arguments.py::test_what_is_no_json_object_or_names_something_twice_is_refused",),
    ),
    Mutation(
        "models told of machinery",
        "R20",
        _REPLIES,
        "    if isinstance(error, _ITS_OWN):\n",
        "    if True:\n",
        ("tool/test_arguments.py::test_a_model_is_told_of_no_machinery_and_the_program_of_what_ends_a_run",),
    ),
    Mutation(
        "a cancellation of what is no request ends the server",
        "R4",
        "sessioncache/cli/wire.py",
        "        self._asked -= {one for one in self._asked if str(one) == str(request)}\n",
        "        self._asked.discard(request)\n",
        ("tool/test_wire.py::test_a_cancellation_of_nothing_is_ignored",),
    ),
    Mutation(
        "a lone surrogate in an id ends the server",
        "R19",
        "sessioncache/cli/wire.py",
        "self._queue.put(as_text(told).encode()",
        "self._queue.put(message.model_dump_json(by_alias=True, exclude_unset=True).encode()",
        ("tool/test_wire.py::test_names_with_lone_surrogates_are_given_back_as_they_came",),
    ),
    Mutation(
        "a line that is too long ends the server",
        "R20",
        "sessioncache/cli/wire.py",
        '                yield b""\n                continue\n',
        "                raise\n",
        ("tool/test_wire.py::test_a_line_beyond_all_measure_is_refused_and_the_next_is_answered",),
    ),
    Mutation(
        "closed streams left closed",
        "R20",
        "sessioncache/cli/main.py",
        "    _fill_closed_streams()\n    try:\n",
        "    try:\n",
        ("tool/test_mcp.py::test_a_stream_that_is_closed_is_an_empty_one",),
    ),
    Mutation(
        "the end waits for what was cancelled by another type of id",
        "R4",
        "sessioncache/cli/wire.py",
        "if str(one) == str(request)}",
        "if one == request}",
        ("tool/test_wire.py::test_at_the_end_nobody_waits_for_what_was_cancelled",),
    ),
    Mutation(
        "a lone surrogate breaks the wire",
        "R19",
        "sessioncache/cli/mcp.py",
        "reply if is_encodable(json.dumps(reply, ensure_ascii=False)) else None",
        "reply",
        ("tool/test_mcp.py::test_the_sdks_client_gets_each_reply",),
    ),
    Mutation(
        "MCP calls overtake each other",
        "R2",
        "sessioncache/cli/mcp.py",
        "        async with in_turn:\n            return await _answer(tool, params.arguments or {})\n",
        "        return await _answer(tool, params.arguments or {})\n",
        ("tool/test_mcp.py::test_the_end_of_input_ends_it_once_what_was_asked_is_answered",),
    ),
    Mutation(
        "last answers dropped",
        "R4",
        "sessioncache/cli/wire.py",
        "            if self._asked:\n",
        "            if False:\n",
        ("tool/test_mcp.py::test_the_end_of_input_ends_it_once_what_was_asked_is_answered",),
    ),
    Mutation(
        "a new record of writes a call",
        "R11",
        "sessioncache/tool/state_tool.py",
        "known.pop(name, None) or session.namespace(name)",
        "session.namespace(name)",
        ("tool/test_tool.py::test_a_long_loop_leaves_no_more_to_flush_than_its_namespaces",),
    ),
)
