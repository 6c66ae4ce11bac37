"""The board: cards that named agents work on for days. This package has the board itself and its faces for models.

| module | what is there |
|---|---|
| `board` | `Board`, every verb, each a transaction; `AsyncBoard` for an event loop; `open_board` |
| `boards` | `Boards`: which boards there are, which one is meant, where each lives |
| `card` | values: `Card`, `NewCard`, `Claim`, `Proof`, `Run`, `Worker`, … |
| `moves` | states, and every way from one to another, as a table; outcomes of runs |
| `errors` | `ClaimLost`, `MoveRefused`, `StillRunning`, `BudgetSpent`, … |
| `context` | `worker_context`: what a worker is told of its card |
| `access` | the boards as one profile uses them |
| `seat` | a worker's `Seat` at its card, from the variables it was started with; loads no database |
| `toolset` | the tools of models: workers and orchestrators |
| `foreign` | copying from another program's board |
| `place` | which machine and home this is |
| `store`, `engines`, `tables` | the database: SQLite or PostgreSQL, transactions, migrations |
| `creating`, `linking`, `claiming`, `releasing`, `ending`, `budgets`, `leading`, `reading` | the statements |

A worker's life: `Board.claim` counts the attempt and gives a `Claim`; `note_process` says where it lives; `heartbeat`
prolongs the claim and brings a wish to stop; `complete`, `block` or `request_review` end the run; `release`, with a
`Proof` that the process is gone, is called for every run in the end, whatever it did, and only then may the card be
taken again.

| serving a board | what is there |
|---|---|
| `dispatcher`, `tending`, `outages` | one pass: who is gone, what starts, when the board rests |
| `launching`, `run_process`, `board_lock` | a worker's process: its start, its lock, its end; who dispatches |
| `worker`, `bench`, `placing` | a run in its own process: session, signs of life, check; its folder and branch |
| `orchestrator`, `planning`, `swarm`, `tree`, `merging` | a goal: its plan, how it stands, its branches joined |
| `reasons`, `diagnosis` | why cards are left alone, and what cures it |
| `telling`, `cleaning`, `repairing` | what a person is told; what goes with time; what contradicts itself |
"""
