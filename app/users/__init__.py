"""The users of one server: who they are and how they log in (`login.py`), whose sessions they see, where they work, which keys
and how much they may use (`accounts.py`).

Begin at `users.py`. Without users everybody is the operator, who may do everything.
"""
