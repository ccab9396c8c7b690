"""URLs of tiers: as they may be shown, without passwords, and how these are written in them.  Pure: no I/O."""

from __future__ import annotations

import re

ESCAPES = "in a password @ is written %40, / is %2F, # is %23 and ? is %3F"
_SHOWN = {"host", "port", "db", "sslmode", "dbname"}
"""Parameters that hold no secret."""
_USER = re.compile(r"[\w.-]+\Z")


def shown_url(url: str) -> str:
    """The URL with everything masked that may be a password or a part of one."""
    scheme, found, rest = url.partition("://")
    if not found:
        return "***"
    login, at, place = ("", "", rest) if rest.startswith("/") else rest.rpartition("@")
    if "?" in login:  # of the password, or the beginning of parameters: the rest may be a part of it, too
        return f"{scheme}://***"
    where, asked, parameters = place.partition("?")
    shown = f"{scheme}://{_login(login)}{at}{where.partition('#')[0]}"
    return shown + asked + "&".join(map(_parameter, parameters.split("&"))) if asked else shown


def _login(login: str) -> str:
    """A user name is shown where it looks like one and a password follows it."""
    if not login:
        return ""
    user, colon, _ = login.partition(":")
    return f"{user if colon and _USER.match(user) else ''}:***" if colon else "***"


def _parameter(parameter: str) -> str:
    name, _, value = parameter.partition("=")
    return parameter if name in _SHOWN else f"{name}=***" if value else name
