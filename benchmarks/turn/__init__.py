"""A turn of an agent: read three scopes that others changed, decode all, write one key in each."""
