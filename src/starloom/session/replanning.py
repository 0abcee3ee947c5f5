"""The planner as the runner's `replan`: what surprised the run goes to the constellation's agent, its edit comes back.

Adapts `agents` to `orchestrator.replanning`; made by the galaxy for runs of a request whose planner can replan.
"""

from starloom.agents.constellation_agent import ConstellationAgent
from starloom.agents.edits import Surprise
from starloom.fleet.fleet import Fleet
from starloom.orchestrator.replanning import EditDraft, ReplanRequest
from starloom.session.profiles import device_profiles


class RequestReplanner:
    """Asks the agent for an edit, with the request and the devices as they are now."""

    def __init__(self, agent: ConstellationAgent, request: str, fleet: Fleet, here: str) -> None:
        self._agent = agent
        self._request = request
        self._fleet = fleet
        self._here = here

    async def __call__(self, asked: ReplanRequest) -> EditDraft | None:
        """Return the edit; None: leave the graph as it is.

        Raises:
            ModelError: the model cannot be had or gave nothing usable.
        """
        surprises = [Surprise(item.kind, item.task_id, item.detail) for item in asked.surprises]
        devices = device_profiles(self._fleet, here=self._here, has_agent=True)
        draft = await self._agent.replan(self._request, surprises, asked.document, devices)
        return EditDraft(draft.commands, draft.why) if draft.commands else None
