"""Hash chain of the rows of calls: altered, removed and inserted rows are found.

Each process has a chain of its own. The seal of a row holds its number, the time and the digest of the row before it,
and keyed digests of its values. The last number of a process is kept in a sealed row of its own, so a removed end is
found as well, and so is the time of the first seal, after which no row is without one. The keys are derived from
`SECRET_KEY`.

The removal of a user changes personal values only, and leaves a keyed mark. Retention removes the start of a chain,
whose rows are old enough. A signal and a file receive the ends of chains. They show changes that the database alone
cannot show: an earlier state that was put back, and forged rows of a person who knows the key.
"""
