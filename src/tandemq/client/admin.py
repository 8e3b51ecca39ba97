"""Admin: looks at a cluster and changes it; what CLI, dashboard and Spark planning are built on.

Questions about a topic go to the master of each of its brokers, or to a slave while a master is away; changes go to
masters. Snapshots are plain frozen values (`admin_views`).
"""

from tandemq.client.admin_groups import LATEST, GroupAdmin
from tandemq.client.admin_messages import MessageAdmin
from tandemq.client.admin_topics import TopicAdmin

__all__ = ["LATEST", "Admin"]


class Admin(TopicAdmin, GroupAdmin, MessageAdmin):
    """`async with Admin(namesrv="host:9876") as admin: ...`"""
