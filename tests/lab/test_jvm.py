"""Lines of a broker's log that report a fault of its logs, as logged by 2.2.1, 3.9.2 and 4.3.1."""

from __future__ import annotations

import pytest

from tests.lab.jvm import complaints

TIME = "2026-11-23 05:00:00.123"
OF_OTHERS = (
    (
        "WARN kafka.controller.RequestSendThread - [RequestSendThread controllerId=0] Controller 0's connection"
        " to broker 127.0.0.1:15003 (id: 0 rack: null) was unsuccessful"
    ),
    (
        "WARN org.apache.kafka.clients.NetworkClient - [TransactionCoordinator id=0] Connection to node 0"
        " (/127.0.0.1:15000) could not be established. Broker may not be available."
    ),
    (
        "ERROR org.apache.kafka.controller.QuorumController - [QuorumController id=0] Cancelling deferred write event"
        " maybeFenceReplicas because the event queue is now closed."
    ),
    (
        "ERROR kafka.server.ControllerApis - [ControllerApis nodeId=0] Unexpected error handling request"
        " RequestHeader(apiKey=CONTROLLER_REGISTRATION, apiVersion=0) with context"
    ),
    "ERROR org.apache.kafka.raft.KafkaRaftClient - [RaftManager id=0] Error during an append to the log",
    "WARN kafka.server.BrokerMetadataCheckpoint - No meta.properties file under dir /tmp/logs/meta.properties",
    "INFO kafka.log.LogManager - Loaded 3 logs in 100ms, corrupt 0",
)
OF_LOGS = (
    (
        "WARN kafka.log.Log - [Log partition=t-1, dir=/tmp/logs] Found a corrupted index file corresponding to log file"
        " /tmp/logs/t-1/00000000000000000024.log"
    ),
    "ERROR org.apache.kafka.storage.internals.log.LogCleaner$CleanerThread - Error due to",
    "WARN kafka.coordinator.group.GroupMetadataManager - [GroupMetadataManager brokerId=0] Failed to load",
    "ERROR org.apache.kafka.raft.internals.KafkaRaftLog - Error while deleting /tmp/logs/00000000000000000024.log",
    "FATAL kafka.server.KafkaServer - [KafkaServer id=0] Exiting Kafka.",
    "ERROR kafka.server.BrokerServer - [BrokerServer id=0] Fatal error during startup. Prepare to shutdown",
)


@pytest.mark.parametrize("line", OF_OTHERS)
def test_what_controllers_networks_and_clients_say_of_each_other_is_no_fault_of_a_log(line: str) -> None:
    assert complaints(f"{TIME} {line}\n\tat java.base/java.lang.Thread.run(Thread.java:840)\n") == []


@pytest.mark.parametrize("line", OF_LOGS)
def test_what_is_said_of_a_log_or_of_the_end_of_the_broker_is_told(line: str) -> None:
    assert complaints(f"{TIME} {line}\n") == [line]
