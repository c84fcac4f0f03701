"""Slow operations as a server logs them."""

import datetime

LINE = (
    '{"t":{"$date":"%s"},"s":"I","c":"COMMAND","id":51803,"ctx":"conn7","msg":"Slow query","attr":{"type":"command",'
    '"ns":"shop.orders1","command":{"find":"orders1","filter":{"tenant":7},"$db":"shop"},"planSummary":"COLLSCAN",'
    '"keysExamined":0,"docsExamined":900,"nreturned":1,"reslen":120,"protocol":"op_msg","durationMillis":120}}\n'
)


def slow_line(seconds):
    """The line of an operation that ended then, in seconds since 1970."""
    at = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return LINE % at.isoformat(timespec="milliseconds")
