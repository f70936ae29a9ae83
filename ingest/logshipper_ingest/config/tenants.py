"""The tenant in Loki for a job's entries, if each user has one (docs/privacy.md). Pure.

Loki accepts any tenant that a client names. A gateway names the reader's tenant, and accepts
only user names that match USER. So other names get a tenant that no reader can name. `fake` is
excluded as well: Loki stores the entries of all users there if it has no tenants.
"""

import re

BY_USER = "user"
TENANT_BY = ("", BY_USER)
NOBODYS = "nobody!"  # for entries without a job, from `check`
# deploy/gateway/logshipper/maps.conf has the same
USER = re.compile(r"(?!fake$)[a-z_][a-z0-9_.-]{0,31}")


def tenant_of(tenant_by: str, user: str, uid: int) -> str:
    """Return the tenant of a user's jobs, "" if all share one. uid: -1 if unknown."""
    if tenant_by != BY_USER:
        return ""
    return user if USER.fullmatch(user) else tenant_of_uid(uid)


def tenant_of_uid(uid: int) -> str:
    """Return the tenant of a user without a known name."""
    return f"uid!{uid}" if uid >= 0 else NOBODYS
