"""The local engine: jobs as processes of this machine, under a keeper that outlives the server.

`keeper`, `jobs`, `notices`, `starts`, `spawn`, `launcher`, `takeover`, `records`, `cgroups`, `trees` and `poll` run in
the keeper, on a bare interpreter: they import the standard library's small modules and `wire.sockets`, nothing else
(docs/decisions/0011-keeper.md).
`engine`, `link`, `users`, `nodes` and `build` run in the server.
"""
