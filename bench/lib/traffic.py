"""Traffic of many applications on many connections, with as many query shapes as asked for, made by hand."""

import dataclasses
import random

from lib.wire import Conversation, Schedule, bson, client_address, message

PORT = 27_117


def reply(padding=0):
    """A reply with one document, which has `padding` bytes of text."""
    document = {"_id": 1, "total": 5.0, **({"note": "n" * padding} if padding else {})}
    return bson({"cursor": {"id": 0, "ns": "shop.orders", "firstBatch": [document]}, "ok": 1.0})


def command(shape):
    """A find with a shape of its own, of a usual length."""
    names = [f"field{(shape * step) % 97}" for step in (1, 3, 7)]
    condition = {"tenant": 7, f"only{shape}": "x", names[0]: {"$gt": 5, "$lt": 9}, names[1]: {"$in": [1, 2, 3]}}
    return bson(
        {
            "find": f"orders{shape % 50}",
            "filter": condition,
            "sort": {names[2]: -1},
            "limit": 10,
            "lsid": {"id": "0123456789abcdef"},
            "$db": "shop",
        }
    )


def hello(application):
    client = {
        "application": {"name": f"application-{application:02}"},
        "driver": {"name": "PyMongo", "version": "4.7.3"},
    }
    return bson({"hello": 1, "client": client, "$db": "admin"})


@dataclasses.dataclass
class Traffic:
    """How much of what is sent."""

    connections: int
    shapes: int
    applications: int
    hosts: int
    operations_each: int
    reply_padding: int = 0

    def schedule(self):
        """Every connection opens and names its application. Then they send requests in turn, each with a random shape,
        and get the reply after a random time. None is closed."""
        random.seed(20)
        made, commands = Schedule(), [command(shape) for shape in range(self.shapes)]
        hellos = [hello(application) for application in range(self.applications)]
        greeting = bson({"isWritablePrimary": 1, "maxWireVersion": 21, "ok": 1.0})
        answer = reply(self.reply_padding)
        talks = []

        def add(number, frame):
            made.add(frame, 34, number)

        for number in range(self.connections):
            # The sender replaces client ports: it only matters on which side they are.
            talk = Conversation(client_address(number % self.hosts), 40_000, PORT)
            talks.append(talk)
            for _, frame in talk.handshake():
                add(number, frame)
            add(number, talk.frame(0, message(hellos[number // self.hosts % self.applications], 1)))
            add(number, talk.frame(1, message(greeting, 1, 1)))
        plan = []
        for turn in range(self.operations_each):
            for number in range(self.connections):
                asked = turn * self.connections + number
                answered = asked + min(random.lognormvariate(5, 1.2), self.connections - 1)
                plan += [(asked, 0, number, turn), (answered, 1, number, turn)]
        for _, side, number, turn in sorted(plan):
            document = answer if side else commands[random.randrange(self.shapes)]
            add(number, talks[number].frame(side, message(document, 2 + turn, (2 + turn) * side)))
        return made
