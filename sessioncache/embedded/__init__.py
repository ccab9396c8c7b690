"""The embedded default: a Valkey server and a SQLite file in a data folder, shared by all processes that name it.

::

    user processes ──shared──▶ users.lock ◀──exclusive, once nobody is left── keeper
                                                                                ├── server  (holds server.lock)
                                                                                └── worker  (holds worker.lock)

Each fact about a folder is a lock that the kernel drops with its holder, so no crash leaves a lie behind:

* `users.lock`, shared: somebody uses the folder.  `worker-users.lock`, shared: somebody wants a worker.
* `keeper.lock`, exclusive: the one keeper, a detached process that starts server and worker, starts them again when
  they die, and ends them when nobody has used the folder for a moment.  Each user starts it again when it dies.
* `server.lock` and `worker.lock`, exclusive: held by the server and the worker themselves through an inherited
  descriptor.  They outlive a keeper that was killed; the next one finds them taken and adopts the processes.

No user can get a server that is about to end: the server is told to end only while the keeper holds `users.lock`
exclusively, and a user looks for the server only while it holds the lock shared.
The folder must be on a local file system: where `flock` is emulated over a network a lock does not pass to a child.
"""

from sessioncache.embedded.opening import Embedded

__all__ = ["Embedded"]
