"""What every backend of sessioncache must do, as pytest tests to be run with one fixture of yours.

``open_cache(app=…, org=…)`` opens a cache of your backend: an asynchronous context manager.  All calls within one test
must be for the same backend; tests use orgs of their own, so that one backend may serve them all::

    import pytest
    from sessioncache.testing.conformance import *

    @pytest.fixture
    def open_cache():
        store = MyStore()

        def open_one(*, app, org):
            return MyCache(store, app=app, org=org)

        return open_one

What a backend writes has to become durable while the tests run, since some of them wait for `flush`.  No test depends
on time, and no plugin of pytest is needed.  To leave something out, import the classes that you want by their names.
"""

from pkgutil import iter_modules

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

from sessioncache.testing.conformance.ambient import TestBinding, TestResume  # noqa: E402
from sessioncache.testing.conformance.base import Conformance, OpenCache  # noqa: E402
from sessioncache.testing.conformance.batches import TestBatches  # noqa: E402
from sessioncache.testing.conformance.concurrency import TestConcurrency  # noqa: E402
from sessioncache.testing.conformance.erasing import TestErasing, TestExports  # noqa: E402
from sessioncache.testing.conformance.failures import TestErrors  # noqa: E402
from sessioncache.testing.conformance.forks import TestForks  # noqa: E402
from sessioncache.testing.conformance.leases import TestLeases  # noqa: E402
from sessioncache.testing.conformance.listing import TestLists  # noqa: E402
from sessioncache.testing.conformance.lives import TestLives  # noqa: E402
from sessioncache.testing.conformance.names import TestLimits, TestNames  # noqa: E402
from sessioncache.testing.conformance.namespaces import TestNamespaces  # noqa: E402
from sessioncache.testing.conformance.pages import TestAllApps, TestFind, TestPages  # noqa: E402
from sessioncache.testing.conformance.records import TestRecords  # noqa: E402
from sessioncache.testing.conformance.scopes import TestPrefixes, TestSharedScopes, TestTemp  # noqa: E402
from sessioncache.testing.conformance.sessions import TestSessions  # noqa: E402
from sessioncache.testing.conformance.tool import TestTool  # noqa: E402
from sessioncache.testing.conformance.touches import TestClearing, TestTitles, TestTouches  # noqa: E402
from sessioncache.testing.conformance.updates import TestCounting, TestEdits, TestRevisions, TestUpdates  # noqa: E402
from sessioncache.testing.conformance.values import TestValues  # noqa: E402
from sessioncache.testing.conformance.watching import TestWatching  # noqa: E402

__all__ = [
    "Conformance",
    "OpenCache",
    "TestAllApps",
    "TestBatches",
    "TestBinding",
    "TestClearing",
    "TestConcurrency",
    "TestCounting",
    "TestEdits",
    "TestErasing",
    "TestErrors",
    "TestExports",
    "TestFind",
    "TestForks",
    "TestLeases",
    "TestLimits",
    "TestLists",
    "TestLives",
    "TestNames",
    "TestNamespaces",
    "TestPages",
    "TestPrefixes",
    "TestRecords",
    "TestResume",
    "TestRevisions",
    "TestSessions",
    "TestSharedScopes",
    "TestTemp",
    "TestTitles",
    "TestTool",
    "TestTouches",
    "TestUpdates",
    "TestValues",
    "TestWatching",
]
