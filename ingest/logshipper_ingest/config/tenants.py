"""Whose tenant in Loki a job's entries go to, where each user has one (docs/privacy.md). Pure.

Loki believes whoever names a tenant: a gateway before it names it for the reader, and takes for a
user's name only what USER says. So what isn't such a name gets a tenant that nobody can have named
there. `fake` is none either: Loki calls the tenant so that holds what was stored, by all users,
before it told tenants apart.
"""

import re

BY_USER = "user"
TENANT_BY = ("", BY_USER)
NOBODYS = "nobody!"  # for what is of no job: `check`'s entries
# deploy/gateway/logshipper/maps.conf has the same
USER = re.compile(r"(?!fake$)[a-z_][a-z0-9_.-]{0,31}")


def tenant_of(tenant_by: str, user: str, uid: int) -> str:
    """The tenant of a user's jobs; "" where all share one. uid: -1 where it isn't known."""
    if tenant_by != BY_USER:
        return ""
    if USER.fullmatch(user):
        return user
    return tenant_of_uid(uid)


def tenant_of_uid(uid: int) -> str:
    """That of a user whose name isn't known."""
    return f"uid!{uid}" if uid >= 0 else NOBODYS
