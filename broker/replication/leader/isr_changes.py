"""How a leader's ISR proposals reach the controller.

One thread collects the proposals of this broker's partitions and sends one AlterPartition at a time. Proposals that
come during a request go together into the next one. A proposal is sent until the controller answers it. If a partition
proposes again, the newer proposal counts; the older one is answered as uncertain, because it may have been sent.

A request without proposals checks whether the controller knows this broker, in case ZooKeeper cannot be reached.
Proposals wait meanwhile: a leader that cannot reach ZooKeeper changes no ISR.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import structlog

from ottla.broker.replication.leader.leadership import IsrAnswer, IsrProposal
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import LAST_VERSION, Message
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from ottla.protocol.primitives import UUID_ZERO

log = structlog.get_logger(__name__)

# From these versions on, topics are named by id, and the members of an ISR carry their epochs.
_BY_ID_VERSION: Final = 2
_WITH_EPOCHS_VERSION: Final = 3
_RETRY_SECONDS: Final = 0.05
_STOP_SECONDS_MAX: Final = 10.0

Answered = Callable[[IsrProposal, IsrAnswer], None]


class ControllerRequests(Protocol):
    """Sends requests to the current controller."""

    def request(self, api: Api, build: Callable[[int], Message], version_max: int = LAST_VERSION) -> Any:
        """Send the request that `build` makes for the version in use; raise KafkaError or ProtocolError."""

    def close(self) -> None:
        """End the current request, and fail all others."""


class _Waiting(NamedTuple):
    proposal: IsrProposal
    answered: Answered


class IsrChanges:
    """Proposals on their way to the controller. Any thread submits; one thread sends and delivers the answers."""

    def __init__(
        self,
        controller: ControllerRequests,
        node_id: int,
        broker_epoch: Callable[[], int],
        on_unregistered: Callable[[], None] = lambda: None,
        may_propose: Callable[[], bool] = lambda: True,
    ) -> None:
        """`on_unregistered` is called, repeatedly, while the controller does not know this life of the broker.

        Proposals wait while `may_propose` returns False. It must be cheap, and take no lock.
        """
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self.on_unregistered = on_unregistered
        self._may_propose = may_propose
        # All fields below are under `_changed`.
        self._changed = threading.Condition()
        self._waiting: dict[TopicPartition, _Waiting] = {}
        self._replaced: list[_Waiting] = []
        self._is_in_doubt = False
        self._is_stopped = False
        # Only for the thread: whether the last request failed.
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="isr-changes", daemon=True)

    def __repr__(self) -> str:
        return f"<IsrChanges waiting={len(self._waiting)}>"

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sending. Waiting proposals get no answer, because their partitions are about to stop leading."""
        with self._changed:
            self._is_stopped = True
            self._waiting.clear()
            self._replaced.clear()
            self._changed.notify()
        self._controller.close()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS_MAX)

    def submit(self, proposal: IsrProposal, answered: Answered) -> None:
        """Send a proposal; `answered` is called on another thread. Never blocks, and may be called under any lock."""
        with self._changed:
            if self._is_stopped:
                return
            earlier = self._waiting.get(proposal.partition)
            if earlier is not None:
                self._replaced.append(earlier)
            self._waiting[proposal.partition] = _Waiting(proposal, answered)
            self._changed.notify()

    def ask_whether_registered(self) -> None:
        """Call `on_unregistered` later if this broker is not registered with its current epoch. Never blocks."""
        with self._changed:
            self._is_in_doubt = True
            self._changed.notify()

    # The thread

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            try:
                has_failed = self._send(batch)
            except (KafkaError, ProtocolError) as error:
                self._report(str(error))
                has_failed = True
                self._put_back(batch)
            except Exception:
                log.exception("isr_changes_failed")
                has_failed = True
                self._put_back(batch)
            if has_failed:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_stopped, timeout=_RETRY_SECONDS)

    def _next(self) -> list[_Waiting] | None:
        """Wait for proposals, or for a question about the registration; return the proposals, or None when stopped."""
        with self._changed:
            while not (self._waiting and self._may_propose()) and not self._is_in_doubt and not self._is_stopped:
                # Nobody tells when a doubt ends.
                self._changed.wait(_RETRY_SECONDS if self._waiting else None)
            if self._is_stopped:
                return None
            self._is_in_doubt = False
            batch: list[_Waiting] = []
            if self._may_propose():
                batch, self._waiting = list(self._waiting.values()), {}
            replaced, self._replaced = self._replaced, []
        for waiting in replaced:
            self._answer(waiting, IsrAnswer(ErrorCode.INVALID_UPDATE_VERSION))
        return batch

    def _put_back(self, batch: list[_Waiting]) -> None:
        with self._changed:
            if self._is_stopped:
                return
            for waiting in batch:
                newer = self._waiting.setdefault(waiting.proposal.partition, waiting)
                if newer is not waiting:
                    self._replaced.append(waiting)

    def _send(self, batch: list[_Waiting]) -> bool:
        """Send proposals and deliver the answers; return whether to pause before the next request."""
        is_by_id = all(waiting.proposal.topic_id != UUID_ZERO for waiting in batch)
        broker_epoch = self._broker_epoch()
        response = self._controller.request(
            Api.ALTER_PARTITION,
            lambda version: self._request(batch, broker_epoch, version),
            LAST_VERSION if is_by_id else _BY_ID_VERSION - 1,
        )
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            # The other broker is not the controller (yet), has not seen our new registration, or saw our session end.
            # If we have registered since the request, the answer is about an earlier registration.
            if code is ErrorCode.STALE_BROKER_EPOCH and broker_epoch == self._broker_epoch():
                self.on_unregistered()
            raise KafkaError(code, "the controller refused all proposals")
        if self._is_failing:
            self._is_failing = False
            log.info("isr_changes_reach_controller_again")
        answers = _answers(response)
        has_failed = False
        for waiting in batch:
            name, index = waiting.proposal.partition
            data = answers.get((waiting.proposal.topic_id, index)) or answers.get((name, index))
            answer = IsrAnswer(ErrorCode.UNKNOWN_SERVER_ERROR) if data is None else _answer(data)
            if answer.error_code is not ErrorCode.NONE:
                has_failed = True
                log.info("isr_change_refused", partition=str(waiting.proposal.partition), error=answer.error_code.name)
            self._answer(waiting, answer)
        return has_failed

    def _answer(self, waiting: _Waiting, answer: IsrAnswer) -> None:
        try:
            waiting.answered(waiting.proposal, answer)
        except Exception:
            log.exception("isr_answer_failed", partition=str(waiting.proposal.partition))

    def _request(self, batch: list[_Waiting], broker_epoch: int, version: int) -> AlterPartitionRequest:
        topics: dict[tuple[str, bytes], list[RequestPartitionData]] = {}
        for proposal, _ in batch:
            topics.setdefault((proposal.partition.topic, proposal.topic_id), []).append(_row(proposal, version))
        return AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=broker_epoch,
            topics=[
                RequestTopicData(topic_name=name, topic_id=topic_id, partitions=rows)
                for (name, topic_id), rows in topics.items()
            ],
        )

    def _report(self, error: str) -> None:
        if not self._is_failing and not self._is_stopped:
            self._is_failing = True
            log.warning("isr_changes_wait_for_controller", error=error)


def _row(proposal: IsrProposal, version: int) -> RequestPartitionData:
    isr: dict[str, Any] = {"new_isr": [broker for broker, _ in proposal.isr]}
    if version >= _WITH_EPOCHS_VERSION:
        isr = {
            "new_isr_with_epochs": [BrokerState(broker_id=broker, broker_epoch=epoch) for broker, epoch in proposal.isr]
        }
    return RequestPartitionData(
        partition_index=proposal.partition.partition,
        leader_epoch=proposal.leader_epoch,
        leader_recovery_state=proposal.leader_recovery_state,
        partition_epoch=proposal.partition_epoch,
        **isr,
    )


def _answers(response: AlterPartitionResponse) -> Mapping[tuple[bytes | str, int], ResponsePartitionData]:
    """Return the rows of a response by topic (as the response names it) and partition."""
    return {
        (topic.topic_name or topic.topic_id, data.partition_index): data
        for topic in response.topics
        for data in topic.partitions
    }


def _answer(data: ResponsePartitionData) -> IsrAnswer:
    return IsrAnswer(
        error_code=ErrorCode.of(data.error_code),
        leader_id=data.leader_id,
        leader_epoch=data.leader_epoch,
        isr=tuple(data.isr),
        partition_epoch=data.partition_epoch,
        leader_recovery_state=data.leader_recovery_state,
    )
