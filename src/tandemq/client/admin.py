"""Admin: looks at a cluster and changes it; what CLI, dashboard and Spark planning are built on.

Questions about a topic go to the master of each of its brokers, or to a slave while a master is away; changes go to
masters. Snapshots are plain frozen values (`admin_views`).
"""

from tandemq.client.admin_groups import LATEST, GroupAdmin
from tandemq.client.admin_ha import HaAdmin
from tandemq.client.admin_messages import MessageAdmin
from tandemq.client.admin_topics import TopicAdmin

__all__ = ["LATEST", "Admin"]


class Admin(TopicAdmin, GroupAdmin, MessageAdmin, HaAdmin):
    """Shows and changes a cluster: topics, groups, offsets, messages, brokers.

    async with Admin(namesrv="127.0.0.1:9876") as admin:
        await admin.create_topic(TopicConfig(name="orders", read_queues=8, write_queues=8))
        for queue, (first, following) in (await admin.queue_ranges("orders")).items():
            print(queue.broker_name, queue.queue_id, following - first)
    """
