"""What goes wrong in a simulated group, at random by its seed, and how it all heals."""

from tandemq.codec.ha_classic import Chunk, Head, TransferReader, encode_report
from tandemq.errors import CodecError
from tandemq.sim.node import SimNode, log_file
from tandemq.sim.operated import Operated

FAULTS: dict[str, int] = {
    "kill": 6,
    "power": 6,
    "power_at_write": 4,
    "power_all": 1,
    "restart": 3,
    "pause": 3,
    "partition": 4,
    "one_way": 3,
    "reset": 4,
    "half_reset": 4,
    "slow": 2,
    "damage": 2,
    "bit_flip": 1,
    "io_error": 1,
    "disk_full": 2,
    "replace_disk": 1,
    "promote": 4,
    "misdirect": 3,
    "forge": 2,
    "forget": 2,
}
"""What may happen, and how often relative to each other."""


class World(Operated):
    """Nodes, network, producer, operator and fate."""

    @property
    def kinds(self) -> dict[str, int]:
        """What may happen, and how often relative to each other."""
        return FAULTS

    def _fault(self) -> None:
        if self._calm:
            return
        random = self.random
        names, weights = zip(*self.kinds.items(), strict=True)
        name = random.choices(names, weights)[0]
        if getattr(self, f"_fault_{name}")(random.choice(self.nodes)):
            self.result.faults[name] = self.result.faults.get(name, 0) + 1
        self.events.after(random.uniform(*self.fault_pause), self._fault)

    def _fault_kill(self, node: SimNode) -> bool:
        node.die(power=False)
        return True

    def _fault_power(self, node: SimNode) -> bool:
        node.die(power=True)
        return True

    def _fault_power_at_write(self, node: SimNode) -> bool:
        """The power goes in the middle of one of the next disk operations."""
        if not node.alive:
            return False
        node.disk.crash_at = len(node.disk.steps) + self.random.randrange(12)
        return True

    def _fault_power_all(self, node: SimNode) -> bool:
        for each in self.nodes:
            each.die(power=True)
        return True

    def _fault_restart(self, node: SimNode) -> bool:
        if not node.alive:
            return False
        self._tell(f"{node.name} is stopped")
        self._must_survive[node.name] = (self.ledger.held_by(node), "clean stop")
        node.stop()
        self.events.after(self.random.uniform(0.02, 0.3), lambda: self._boot(node))
        return True

    def _fault_pause(self, node: SimNode) -> bool:
        self._tell(f"{node.name} pauses")
        node.pause(self.random.uniform(0.02, self.away_max))
        return True

    def _fault_partition(self, node: SimNode) -> bool:
        self._tell(f"{node.name} is cut off")
        for other in self.nodes:
            if other is not node:
                self.network.block(node.name, other.name)
                self.network.block(other.name, node.name)
        self.events.after(self.random.uniform(0.05, self.cut_max), self.network.heal)
        return True

    def _fault_one_way(self, node: SimNode) -> bool:
        other = self.random.choice(self.nodes)
        if other is node:
            return False
        self._tell(f"nothing passes from {node.name} to {other.name}")
        self.network.block(node.name, other.name)
        self.events.after(self.random.uniform(0.05, self.cut_max), self.network.heal)
        return True

    def _fault_reset(self, node: SimNode) -> bool:
        for link in [link for link in self.network.links.values() if link.here == node.name]:
            self.network.reset(link)
        return True

    def _fault_half_reset(self, node: SimNode) -> bool:
        """Only the slave notices, and comes again while the master still has its old connection."""
        for link in [link for link in self.network.links.values() if link.here == node.name]:
            if node.slave is not None:
                self.network.reset(link, both=False)
        return True

    def _fault_slow(self, node: SimNode) -> bool:
        self.network.slowness = self.random.choice((1.0, 5.0, 20.0))
        return True

    def _fault_damage(self, node: SimNode) -> bool:
        self.network.damage = self.random.choice((0.0, 0.02))
        return True

    def _fault_bit_flip(self, node: SimNode) -> bool:
        """A bit of the log rots while the machine is off; recovery must notice, or the disk is replaced."""
        if not node.alive or any(not other.alive for other in self.nodes) or node.disk.capacity is not None:
            return False  # on a full disk it may not start, and then nobody looks at what recovery found
        end, first = node.store.appended, node.store.first_offset
        last_record = max(first, end - 150)
        if end - last_record < 100:
            return False
        node.die(power=False)
        node.disk.boot += 1
        at = self.random.randrange(last_record, end)
        size = node.store_config.commit_log_segment_size
        file = node.disk.files.get(log_file(at - at % size))
        if file is not None:
            self._tell(f"a bit rots at {at} on {node.name}")
            self._power_cut_at[node.name] = self.events.now
            file.data[at % size] ^= 1 << self.random.randrange(8)
            file.durable = bytes(file.data)
            self._must_survive[node.name] = ([], "")
            self._replace_if_undetected(node, at)
        return True

    def _replace_if_undetected(self, node: SimNode, at: int) -> None:
        rotten = node.log_bytes(at, at + 1)

        def look() -> None:
            if node.alive and node.store.appended > at and node.log_bytes(at, at + 1) == rotten:
                # Not every byte of a record is under its checksum; an audit finds it, the operator replaces the disk.
                node.die(power=False)
                self._must_survive[node.name] = ([], "")
                node.wipe()

        self.events.after(0.0, lambda: self._boot_then(node, look))

    def _boot_then(self, node: SimNode, action: object) -> None:
        if not node.alive:
            # Look at what recovery found before the node may speak to anybody.
            self._boot_silently(node)
        assert callable(action)
        action()

    def _boot_silently(self, node: SimNode) -> None:
        blocked = set(self.network.blocked)
        for other in self.nodes:
            self.network.blocked.update(((node.name, other.name), (other.name, node.name)))
        role, node.role = node.role, "slave"
        node.boot()
        node.role = role
        self.network.blocked = blocked

    def _fault_io_error(self, node: SimNode) -> bool:
        if not node.alive:
            return False
        self._tell(f"fdatasync fails on {node.name}")
        node.disk.sync_error = OSError(5, "Input/output error")
        return True

    def _fault_disk_full(self, node: SimNode) -> bool:
        if not node.alive:
            return False
        self._tell(f"the disk of {node.name} fills up")
        disk = node.disk
        disk.capacity = disk.usage(log_file(0))[0] + self.random.randrange(3000)
        self.events.after(self.random.uniform(0.05, 0.4), lambda: self._free_disk(node))
        return True

    def _free_disk(self, node: SimNode) -> None:
        node.disk.capacity = None
        if node.alive:
            node.store.retain()

    def _fault_replace_disk(self, node: SimNode) -> bool:
        """Only in a healthy group: a second failure on top would be more than any level of two promises."""
        if not self._converged_roughly():
            return False
        node.die(power=False)
        self._tell(f"{node.name} gets a new disk")
        self._power_cut_at[node.name] = self.events.now
        self._must_survive[node.name] = ([], "")
        node.wipe()
        return True

    def _converged_roughly(self) -> bool:
        return self.chosen.is_open and all(
            node is self.chosen or (node.is_following and node.record.promise == self.chosen.record.promise)
            for node in self.nodes
        )

    def _fault_promote(self, node: SimNode) -> bool:
        self._promote()
        return True

    def _fault_misdirect(self, node: SimNode) -> bool:
        """A stale address: a slave goes to another node for a while."""
        other = self.random.choice(self.nodes)
        if other is node or node.slave is None:
            return False
        self._misdirect(node, other)
        return True

    def _misdirect(self, node: SimNode, other: SimNode) -> None:
        self._tell(f"{node.name} is sent to {other.name}")
        node.follows = other
        for link in list(node.links.values()):
            self.network.reset(link)

        def again() -> None:
            if node.alive and node.slave is not None:
                node.follows = None
                for link in list(node.links.values()):
                    self.network.reset(link)

        self.events.after(self.random.uniform(0.1, 0.5), again)

    def _fault_forge(self, node: SimNode) -> bool:
        """A stranger says hello as an empty RocketMQ slave; it reports what it is sent and keeps nothing, or claims to
        have everything and more."""
        if not node.is_open or node.master is None or node.master_terms.shared_key:
            return False
        reader, have = TransferReader(), 0

        def feign(data: bytes) -> None:
            nonlocal have
            try:
                for event in reader.feed(data):
                    have += len(event.data) if isinstance(event, Chunk) else 0
                    have = event.offset if isinstance(event, Head) and have == 0 else have
            except CodecError:  # nothing guards that stream against damage on the way
                if link is not None:
                    self.network.close(link)
                return
            # A group of one counts a RocketMQ slave for two copies, as it must, and this one keeps nothing.
            group = node.record.register
            if link is not None and link.open and have and group is not None and group.size > 1:
                self.network.send(link, encode_report(have))

        link = self.network.connect("stranger", node.name, node.accept, lambda data: feign(data), lambda: None)
        if link is None:
            return False
        self.network.send(link, encode_report(0))
        register = node.record.register
        if register is not None and register.size > 1 and self.random.random() < 0.5:
            return True  # it says nothing more, but for what `_feign` answers

        def claim() -> None:
            if link.open and node.alive:
                self.network.send(link, encode_report(node.store.appended + 5000))

        self.events.after(0.01, claim)
        return True

    def _fault_forget(self, node: SimNode) -> bool:
        """The operator takes a replica out whose store is gone, or any that is away."""
        register, master = node.record.register, node.master
        if not node.is_open or master is None or register is None or node.events.now < node.paused_until:
            return False
        if register.size <= 2:
            return False  # alone, it would count a RocketMQ slave, and the stranger that feigns to be one keeps nothing
        here = {other.record.replica for other in self.nodes}
        away = sorted(
            register.everybody - {session.replica for session in master.sessions.values()} - {register.holder}
        )
        lost = [replica for replica in away if replica not in here]
        if not lost and (not away or self.random.random() < 0.8):
            return False
        replica = self.random.choice(lost or away)
        self._tell(f"{node.name} is told to forget {replica}")

        def forget() -> None:
            if node.master is master:
                refusal, decisions = master.forget(replica, node.now)
                node.trace(f"forgets {replica}: {refusal or 'done'}")
                node.act(decisions)

        node.guarded(forget)
        return True

    def _heal_everything(self) -> None:
        self._calm = True
        self._tell("everything heals")
        self.network.damage, self.network.slowness = 0.0, 1.0
        self.network.heal()
        for link in [link for link in self.network.links.values() if link.here == "stranger"]:
            self.network.close(link)
        for node in self.nodes:
            node.disk.capacity = node.disk.sync_error = None
            if node.disk.crash_at is not None:
                node.disk.crash_at = None
            if node.alive:
                node.store.retain()
        self._settle()
