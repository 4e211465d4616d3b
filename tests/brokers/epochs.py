"""Epoch files as a broker reads them."""

from __future__ import annotations

import socket
import struct

from tests.lab.broker import Broker
from tests.lab.waiting import LIMIT_S, wait_for

ASKED = range(13)


def ask_for_epoch(bootstrap: str, topic: str, epoch: int) -> tuple[int, int, int]:
    """``OffsetsForLeaderEpoch`` (v2, KIP-320): error code, epoch, end offset."""
    host, _, port = bootstrap.partition(":")
    name, client = topic.encode(), b"krepair-lab"
    head = struct.pack(">hhih", 23, 2, 7, len(client)) + client
    body = struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiii", 1, 0, -1, epoch)
    with socket.create_connection((host, int(port)), timeout=LIMIT_S) as wire, wire.makefile("rb") as answers:
        wire.sendall(struct.pack(">i", len(head + body)) + head + body)
        size = struct.unpack(">i", answers.read(4))[0]
        answer = answers.read(size)
    error, _, found, end = struct.unpack(">hiiq", answer[4 + 4 + 4 + 2 + len(name) + 4 :])
    return error, found, end


def end_offsets_for_epochs(broker: Broker, topic: str) -> dict[int, tuple[int, int]]:
    """Asked epoch -> (epoch, end offset), once the broker leads."""
    wait_for(lambda: ask_for_epoch(broker.bootstrap, topic, 0)[0] == 0)
    answers = {epoch: ask_for_epoch(broker.bootstrap, topic, epoch) for epoch in ASKED}
    assert {error for error, _, _ in answers.values()} == {0}
    return {epoch: (found, end) for epoch, (_, found, end) in answers.items()}
