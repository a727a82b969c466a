"""Configuration of other schedulers becomes policy documents, with an account of what each of its fields became.

In: files of Kueue, KAI, Volcano, YuniKorn or Slurm as bytes, and what is known of the nodes. Out: documents as text by path, and
a report. A reader yields `SourceRecord`s; the module of a system turns them into a `PolicyDraft` and notes each field in an
`ImportAccount`; the draft is settled into a tree that can be kept, and written. Nothing here touches a file or a server.
"""
