"""One cache, the engine that uses it, and everything that must hold after each thing they do."""

from collections.abc import Sequence as Items

import numpy as np

from kvstrata import (
    AdmissionDenied,
    ConfigError,
    Deferred,
    Explanation,
    OutOfPages,
    Plan,
    Rates,
    Request,
    Sequence,
    StaleLease,
)
from kvstrata.core.states import PageState
from tests.face.support import check_sums

from .stamps import hashes_of
from .world_parts import Held, Paused, Run
from .world_steps import Stepping

REFUSED = (Deferred, AdmissionDenied, OutOfPages, StaleLease)


class World(Stepping):
    """Drives one manager; every number that chooses something is taken modulo what there is."""

    def request(self, text: int, keep: int, new: Items[int], join: bool, more: int) -> Request:
        """A prompt that begins like another text and goes on by itself."""
        model, tokens = self.texts[text % len(self.texts)]
        if keep % 3 == 0:
            tokens = tokens[: keep % (len(tokens) + 1)]
        prompt = (tokens + list(new))[: 7 * self.setting.block_tokens]
        return Request(
            np.array(prompt or [0]), model, join=join, max_new_tokens=more % 8, weights=""
        )

    def begin(self, request: Request, at: int | None = None) -> Run | None:
        """Match, explain and begin; explained, validated, and of the right bytes."""
        explained = self.cache.explain(request, at)
        plan = self.cache.match(request, at)
        return self._begun(plan, request, explained)

    def begin_late(self, number: int) -> None:
        """Begin on a plan that was made some time ago."""
        if self.plans:
            plan, request = self.plans.pop(number % len(self.plans))
            self._begun(plan, request, None)

    def match_early(self, request: Request) -> None:
        self.plans.append((self.cache.match(request), request))
        del self.plans[:-4]

    def begin_waiting(self, number: int) -> None:
        if self.waiting:
            self.begin(self.waiting.pop(number % len(self.waiting)))

    def _begun(self, plan: Plan, request: Request, explained: Explanation | None) -> Run | None:
        try:
            sequence = self.cache.begin(plan)
        except REFUSED as error:
            self.count(type(error).__name__ if plan.join is None else "join")
            retry_after_s = getattr(error, "retry_after_s", 0.0)
            if isinstance(error, Deferred):
                self._wait(request)
        else:
            return self._runs(sequence, request, explained)
        assert retry_after_s is None or retry_after_s >= 0
        return None

    def _runs(self, sequence: Sequence, request: Request, explained: Explanation | None) -> Run:
        found = sequence.plan
        self.count(found.source)
        if explained is not None:
            told = explained.source, explained.resume_at, explained.reused_tokens
            assert told == (found.source, found.resume_at, found.reused_tokens)
        run = Run(sequence, request, request.tokens[: found.resume_at].tolist())
        self.check_hit(run, found, hashes_of(request.model, request.tokens.tolist()))
        self.runs.append(run)
        return run

    def _wait(self, request: Request) -> None:
        """It will ask again, or never: then it says so."""
        self.waiting.append(request)
        for forgotten in self.waiting[:-4]:
            if self.cache._beginner.admission_control is not None:
                self.cache._beginner.admission_control.forget(forgotten)
        del self.waiting[:-4]

    def serve(self, request: Request) -> None:
        """A whole prompt at once, in steps that end where checkpoints are wanted; then it ends."""
        run = self.begin(request)
        while run is not None and len(run.tokens) < len(request.tokens):
            before = len(run.tokens)
            ends = [end for end in (*run.sequence.captures, len(request.tokens)) if end > before]
            self.reserve([(self.runs.index(run), min(ends) - before - 1, 0)])
            while self.steps:
                self.commit([0])
            if len(run.tokens) == before:
                return  # out of pages
        if run is not None:
            self.end("finish", self.runs.index(run))

    # ends

    def end(self, how: str, number: int) -> None:
        if not self.runs:
            return
        run = self.runs[number % len(self.runs)]
        if how == "cancel":
            self._cancel(run)
            return
        if not run.is_idle:
            self._refused(run, how)
            return
        if how == "fork":
            self._fork(run)
            return
        self.texts.append((run.request.model, list(run.tokens)))
        del self.texts[:-12]
        self.runs.remove(run)
        if how == "finish":
            run.sequence.finish()
            return
        suspended = run.sequence.suspend()
        assert suspended.position == len(run.tokens)
        self.paused.append(Paused(suspended, list(run.tokens)))
        del self.paused[:-4]

    def _refused(self, run: Run, how: str) -> None:
        try:
            getattr(run.sequence, how)()
        except StaleLease:
            return
        raise AssertionError(f"{how} with something in flight was not refused")

    def _cancel(self, run: Run) -> None:
        pages = [
            (group, slot, self.stamps.generation(group, slot))
            for group in self.history
            for slot in self.cache.block_slots(run.sequence, group).tolist()
        ]
        pages += [
            (group, slot, self.stamps.generation(group, slot))
            for group, slot in self.cache.image_slots(run.sequence).items()
        ]
        self.runs.remove(run)
        run.sequence.cancel()
        if not run.is_idle:
            self.draining.append((run, pages))

    def _fork(self, run: Run) -> None:
        try:
            child = run.sequence.fork()
        except (OutOfPages, StaleLease) as error:
            self.count(f"fork {type(error).__name__}")
            return
        self.count("fork")
        assert child.position == len(run.tokens)
        self.runs.append(Run(child, run.request, list(run.tokens)))

    def resume(self, number: int, extra: Items[int]) -> None:
        """Go on with a paused sequence: one token at least is new, or was not yet computed."""
        if not self.paused:
            return
        paused = self.paused[number % len(self.paused)]
        if paused.request is None:
            prompt = paused.suspended.request.tokens.tolist()
            tokens = paused.tokens + prompt[len(paused.tokens) :] + list(extra)
            tokens += [1] * (len(tokens) <= paused.suspended.position)
            paused.request = paused.suspended.with_tokens(np.array(tokens))
        if self.begin(paused.request, paused.suspended.position) is not None:
            self.paused.remove(paused)

    # leases, damage, completions

    def lease(self, request: Request) -> None:
        plan = self.cache.match(request)
        try:
            lease = self.cache.lease(plan)
        except (ConfigError, OutOfPages, StaleLease) as error:
            self.count(f"lease {type(error).__name__}")
            return
        held = Held(lease, hashes_of(request.model, request.tokens.tolist()))
        blocks = lease.plan.blocks[:, 0]
        for part, group in enumerate(self.history):
            slots = self.cache.tables.blocks.pages[blocks, part].tolist()
            assert not [slot for slot in slots if self.stamps.is_flipped(group, slot)]
        lease.verify()
        self.leases.append(held)

    def release(self, number: int) -> None:
        if self.leases:
            held = self.leases.pop(number % len(self.leases))
            held.lease.release()
            for call in (held.lease.verify, held.lease.release):
                try:
                    call()
                except StaleLease:
                    continue
                raise AssertionError("a released lease is still good for something")

    def flip_wanted(self, text: int, which: int, byte: int) -> None:
        """Damage a page that a hit would adopt."""
        model, tokens = self.texts[text % len(self.texts)]
        plan = self.cache.match(Request(np.array([*tokens, 1]), model))
        if not len(plan.blocks):
            return
        if which % 2 and plan.checkpoint[0]:
            group = self.states[which % len(self.states)]
            self.stamps.flip(group, self.cache.slots_of_image(plan.checkpoint[0])[group], byte)
            return
        part = which % len(self.history)
        block = int(plan.blocks[which % len(plan.blocks), 0])
        slot = int(self.cache.tables.blocks.pages[block, part])
        self.stamps.flip(self.history[part], slot, byte)

    def flip(self, number: int, which: int, byte: int) -> None:
        """Damage any sealed page."""
        group = self.cache.layout.groups[number % len(self.cache.layout.groups)].name
        slots = self.in_state(group, PageState.SEALED)
        if slots:
            self.stamps.flip(group, slots[which % len(slots)], byte)

    def scrub(self, max_bytes: int) -> None:
        self.cache.scrub(max_bytes)
        if max_bytes < 1 << 20:
            return
        self.cache.scrub(max_bytes)
        for group in self.cache.layout.groups:
            bad = [
                one
                for one in self.in_state(group.name, PageState.SEALED)
                if self.stamps.is_flipped(group.name, one)
            ]
            assert not bad, "a scrub of everything left a damaged page sealed"

    def dirty(self, which: int) -> None:
        for group in self.cache.layout.groups:
            slots = self.in_state(group.name, PageState.SEALED)
            if group.name.endswith(".index") and slots:
                self.cache.mark_dirty(group.name, [slots[which % len(slots)]])

    def begin_transfer(self, number: int) -> None:
        if self.runs:
            run = self.runs[number % len(self.runs)]
            run.transfers.append(self.cache.begin_transfer(run.sequence))

    def complete(self, number: int, twice: bool) -> None:
        everybody = [run for run in self.everybody() if run.transfers]
        if not everybody:
            return
        transfer = everybody[number % len(everybody)].transfers.pop()
        for _ in range(1 + twice):
            transfer.complete()

    def report(self, number: int) -> None:
        """A completion of something that ended, or never was."""
        late = [number << 16 | 0xFFFF, (1 << 40) + number, -number, 0]
        self.cache.complete(late[number % len(late)])

    def rates(self, tokens_per_s: int, bytes_per_s: int) -> None:
        self.cache._registrar.rates(Rates(tokens_per_s, bytes_per_s))

    def end_everything(self) -> None:
        """End all there is, in some order; then every page is free or findable."""
        while self.steps:
            self.abort(0)
        for run in self.everybody():
            while run.transfers:
                run.transfers.pop().complete()
        for request in self.waiting + [one.request for one in self.paused if one.request]:
            if self.cache._beginner.admission_control is not None:
                self.cache._beginner.admission_control.forget(request)
        for number, run in enumerate(list(self.runs)):
            run.drafts = []
            (run.sequence.finish if number % 2 else run.sequence.cancel)()
        self.runs = []
        while self.leases:
            self.release(0)
        self.cache.begin(self.cache.match(Request(np.array([9]), "last"))).cancel()
        check_sums(self.cache)
        for pool in self.cache.stats().pools:
            held = {state for state, count in pool.pages.items() if count}
            assert held <= {"free", "sealed_idle"}, pool
        admission_control = self.cache._beginner.admission_control
        assert admission_control is None or admission_control.admission.promised_blocks == 0
