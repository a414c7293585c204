"""A race inside the store: its starts are led one resumption of the store's methods at a time.

At the store's boundary a call is one step, so a check that comes before its write looks whole.
Here both starts stand still at every await of the store, and are led in every order with few
changes of turn. Effects are held back until the starts have ended, so that nothing but the starts
reaches the store meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Sequence
from typing import Any, Final

from ..backend import Backend, Blocking
from ..interleave.names import Names, RenamedStore
from ..interleave.steps import Call, Settled, explore_steps, replay_steps
from ..interleave.token import Token, scenario_hash
from ..interleave.verdict import Verdict
from .exploring import RaceVerdict, verdict_of
from .play import KIT, Play
from .race import Parameters, Race
from .scene import Node, Outside, Subject

Blocked = Callable[[], Awaitable[Any]]

PREEMPTIONS: Final = 2


class Held(Outside):
    """A place of a node whose effects wait until every start has ended."""

    def __init__(self, store: Any, leases: Any, released: asyncio.Event) -> None:
        super().__init__(store)
        self.leases = leases
        self.released = released

    async def effect(self, name: str) -> None:
        """Happen once the starts have ended."""
        await self.released.wait()

    async def call(
        self,
        key: Hashable,
        touched: tuple[int, int],
        args: tuple[Any, ...],
        perform: Callable[..., Coroutine[Any, Any, Any]],
    ) -> Any:
        """Do it at once: what is led is the store alone."""
        return await perform(*args)


class Stepping:
    """The calls of one race, run after run, on handles that stay open."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.names = Names(fresh=True)
        self.handles: list[Any] = []
        self.observer: RenamedStore
        self._released = asyncio.Event()
        self._address = ""

    async def __aenter__(self) -> Stepping:
        storage = self.play.storage
        self._address = address = await storage.create()
        count = len(self.play.race.nodes(self.play.scene_on(None)))
        try:
            for _ in range(count + 1):
                self.handles.append(await storage.connect(address))
        except BaseException:
            await self.__aexit__()
            raise
        self.observer = RenamedStore(self.handles[-1], self.names)
        return self

    async def __aexit__(self, *_: object) -> None:
        for handle in self.handles:
            await handle.close()
        await self.play.storage.destroy(self._address)

    @property
    def blocked(self) -> Blocked | None:
        """How to ask which handles wait for a lock, if the backend can say."""
        backend = self.play.backend
        if not isinstance(backend, Blocking) or self.play.storage.wrap is not None:
            return None
        asked: Blocking = backend
        return lambda: asked.blocked(self._address)

    async def make(self) -> Sequence[Call]:
        """A fresh run: one call a node."""
        await self._settle()
        self.names.begin()
        self._released = asyncio.Event()
        scene = await self.play.begin(self.observer)
        scene.later = []
        calls = []
        for (name, act), handle in zip(
            self.play.race.nodes(scene).items(), self.handles, strict=False
        ):
            place = Held(RenamedStore(handle, self.names), None, self._released)
            calls.append(Call(f"node {name}", _starting(act, scene.node(name, place)), handle))
        return calls

    async def check(self, settled: Sequence[Settled]) -> None:
        """Let the runs go on to their ends, and judge."""
        for one in settled:
            if one.error is not None:
                raise AssertionError(f"{one.label} raised {type(one.error).__name__}: {one.error}")
        scene = self.play.scene
        await self._settle()
        if self.play.follows:
            place = Outside(RenamedStore(self.handles[0], self.names))
            await self.play.race.after(scene, scene.node("R", place))
        await self.play.judge()

    async def _settle(self) -> None:
        """Let every drive of the last run end."""
        self._released.set()
        scene = self.play.begun
        later: list[tuple[Node, str, Any]] = [] if scene is None else scene.later or []
        if scene is not None:
            scene.later = None
        for node, act, handle in later:
            await node.act(act, handle.finished())


def _starting(
    act: Callable[[Node], Awaitable[None]], node: Node
) -> Callable[[], Coroutine[Any, Any, None]]:
    async def start() -> None:
        await act(node)

    return start


def _name(race: Race, parameters: Parameters) -> str:
    return f"{race.id} by steps {parameters}".strip()


def made_by_steps(
    race: Race, backend: Backend, token: str, candidates: Iterable[Parameters]
) -> bool:
    """Whether a token is a schedule of the race by steps, with one of these parameters.

    Raises:
        BadToken: it is no token.
    """
    scenario = Token.parse(token).scenario
    for parameters in candidates:
        nodes = race.nodes(Play(race, backend, parameters, KIT, ordered=False).scene_on(None))
        if scenario == scenario_hash(_name(race, parameters), len(nodes), ""):
            return True
    return False


def step_race(
    race: Race,
    backend: Backend,
    parameters: Parameters | None = None,
    *,
    token: str | None = None,
    subject: Subject = KIT,
    runtime: str = "",
    called: str = "",
    seconds: float = 60.0,
    patience: float = 10.0,
) -> RaceVerdict:
    """Lead the starts of a race through every order of their resumptions with few changes of turn.

    Call it outside of any running event loop.

    Args:
        race: a race that can be stepped.
        backend: a started instance.
        parameters: what the race leaves open; its first variant by default.
        token: the one schedule to run, if only one is to be.
        subject: what runs the race; the kit's runtime by default.
        runtime: how it is called.
        called: how the backend is called in commands.
        seconds: how long it may take.
        patience: the seconds that one step may take.

    Raises:
        ValueError: the race cannot be stepped.
        BadToken: it is no token, or one of another version or race.
    """
    if not race.stepped:
        raise ValueError(f"{race.id} cannot be led by steps: what it does is more than starts")
    play = Play(race, backend, parameters, subject, ordered=False)
    name = _name(race, play.parameters)

    async def lead() -> Verdict:
        async with Stepping(play) as stepping:
            if token is not None:
                return await replay_steps(
                    name,
                    stepping.make,
                    stepping.check,
                    token,
                    backend=backend.name,
                    blocked=stepping.blocked,
                    patience=patience,
                )
            return await explore_steps(
                name,
                stepping.make,
                stepping.check,
                backend=backend.name,
                preemptions=PREEMPTIONS,
                blocked=stepping.blocked,
                seconds=seconds,
                patience=patience,
            )

    return verdict_of(play, asyncio.run(lead()), runtime, called, steps=True)
