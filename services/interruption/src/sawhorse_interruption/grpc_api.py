"""InterruptionService over gRPC: what this replica is working on."""

from collections.abc import Callable

import grpc

from sawhorse_interruption.consumer import Consumer
from sawhorse_interruption.draining import Draining
from sawhorse_interruption.index import ClaimIndex
from sawhorse_interruption.instruments import Instruments
from sawhorse_proto.interruption.v1 import interruption_pb2 as pb
from sawhorse_proto.interruption.v1 import interruption_pb2_grpc as pb_grpc

SERVICE = "sawhorse.interruption.v1.InterruptionService"


class InterruptionApi(pb_grpc.InterruptionServiceServicer):
    """Answers from memory.

    Args:
        consumer: the present consumer; None while the queue is out of reach.
    """

    def __init__(
        self,
        index: ClaimIndex,
        draining: Draining,
        instruments: Instruments,
        consumer: Callable[[], Consumer | None],
    ) -> None:
        self._index = index
        self._draining = draining
        self._instruments = instruments
        self._consumer = consumer

    async def GetState(
        self,
        request: pb.GetStateRequest,
        context: "grpc.aio.ServicerContext[pb.GetStateRequest, pb.GetStateResponse]",
    ) -> pb.GetStateResponse:
        """This replica's state."""
        consumer = self._consumer()
        counts = self._instruments
        return pb.GetStateResponse(
            synced=self._index.synced,
            handling=consumer.handling if consumer is not None else 0,
            parked=consumer.parked if consumer is not None else 0,
            drains=[
                pb.Drain(
                    node=state.node,
                    claim=state.claim,
                    deadline=state.deadline.timestamp() if state.deadline is not None else 0.0,
                    pods_left=state.pods_left,
                )
                for state in self._draining.states()
            ],
            received=dict(counts.received_counts),
            acted=dict(counts.acted_counts),
            malformed=counts.malformed_count,
            duplicates=counts.duplicate_count,
            foreign=counts.foreign_count,
        )


def add_to(server: grpc.aio.Server, api: InterruptionApi) -> None:
    """Add the service to a server."""
    pb_grpc.add_InterruptionServiceServicer_to_server(api, server)
