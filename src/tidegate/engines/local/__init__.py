"""The local engine: jobs as processes of this machine, under a keeper that outlives the server.

`keeper`, `jobs`, `starts`, `notices`, `records`, `takeover`, `cgroups`, `trees`, `poll`, `spawn` and `launcher` run in
the keeper, on a bare interpreter: they import the standard library's small modules and nothing of the model
(docs/decisions/0011-keeper.md).
`engine`, `link`, `users`, `nodes` and `build` run in the server.
"""
