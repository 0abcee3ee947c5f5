"""The rules of the policy, in a table: the first that has an opinion decides.

Pure. Called by the gate in the hub for every action before any of a reply's actions is carried out, and (`owner_limit`)
by the device's router.

    rule           an action that                                             verdict
    unknown_tool   names a tool that the device did not offer                 deny
    approved       a person has approved, this device, tool and arguments     allow
    read_secret    reads where secrets usually lie (.env, .ssh, *.pem …)      ask, unless the user named it
    read_inside    reads, within the device's folder                          allow
    read_named     reads elsewhere, at a place the user named                 allow
    read_elsewhere reads elsewhere                                            ask
    suspicious     changes something, and a detector fired on the way to it   ask
    write_named    changes only places the user named                         allow
    write_unnamed  changes a place that nobody but a model or a file named    ask
    outward        has an effect outside, or one that cannot be taken back    ask

"Named" means: the destination stands in the trusted text as a whole word. Data from files, screens and tools may flow
into an action's content, never into where it acts. Source: llm.md section 6, layer 1.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from starloom.safety.approvals import action_hash
from starloom.safety.paths import is_confined
from starloom.safety.policy import Decision, Facts, ProposedAction, Risk, Verdict

Rule: TypeAlias = Callable[[ProposedAction, Facts], Verdict | None]

_RISKS = tuple(Risk)
_REFERENCE = "{{"
_UNSPACED = "[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff01-\uffef]"  # kana, Han, Hangul, full-width forms

_SECRET_PLACE = re.compile(
    r"\.env(\..*)?|\.ssh|\.gnupg|\.aws|\.azure|\.kube|\.docker|\.netrc|\.npmrc|\.pypirc|\.pgpass|\.git-credentials"
    r"|\.password-store|id_(rsa|dsa|ecdsa|ed25519)|.*\.(pem|key|p12|pfx|kdbx|keystore|jks)|credentials(\..*)?|secrets?(\..*)?"
)


def judge(action: ProposedAction, facts: Facts) -> Verdict:
    """Return the verdict of the first rule that has one; an action that no rule knows is denied."""
    for rule in RULES:
        verdict = rule(action, facts)
        if verdict is not None:
            return verdict
    return Verdict(Decision.DENY, "default", f"No rule of the policy covers {action.tool}.")


def at_least(risk: Risk, floor: Risk) -> bool:
    """Answer whether a risk is as high as another, or higher."""
    return _RISKS.index(risk) >= _RISKS.index(floor)


def owner_limit(action: ProposedAction, highest: Risk) -> Verdict:
    """Return a device's own judgement: what its owner does not permit, no hub can order."""
    if action.risk is None or not at_least(highest, action.risk):
        what = "unknown" if action.risk is None else action.risk.value
        reason = f"its owner permits {highest.value} at most, and {action.tool} is {what}."
        return Verdict(Decision.DENY, "owner_limit", reason)
    return Verdict(Decision.ALLOW, "owner_limit", f"The device's owner permits up to {highest.value}.")


def propose(
    device_id: str, tool: str, arguments: Mapping[str, Any], risk: Risk | None, destinations: Iterable[str] = ()
) -> ProposedAction:
    """Return the action that a tool call is, its destinations taken from the arguments that the tool says are such.

    Args:
        device_id: where it would run.
        tool: the qualified name.
        arguments: as they would be sent, every reference resolved.
        risk: the tool's, None when the device did not offer the tool.
        destinations: the names of the arguments that say where the tool acts.
    """
    values = tuple(value for name in destinations for value in _flat(arguments.get(name)))
    return ProposedAction(device_id, tool, dict(arguments), risk, values)


def is_named(destination: str, trusted_text: str) -> bool:
    """Answer whether a destination stands in the text as a whole word, not as a part of a longer name, path or address.

    Scripts written without spaces end a word wherever the destination's own script does.
    """
    wanted = unicodedata.normalize("NFC", destination).removeprefix("./").rstrip("/")
    if not wanted.strip(". "):
        return False
    before = r"\w" if re.match(_UNSPACED, wanted[0]) else rf"[^\W{_UNSPACED[1:]}"
    after = r"\w" if re.match(_UNSPACED, wanted[-1]) else rf"[^\W{_UNSPACED[1:]}"
    pattern = rf"(?<!{before})(?<![/\\.~@-])(?:\./)?{re.escape(wanted)}/?(?!{after}|[/\\-]|[.?#&=:@%+][\w.])"
    return re.search(pattern, unicodedata.normalize("NFC", trusted_text)) is not None


def _flat(value: object) -> Iterator[str]:
    if value is None:
        return
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flat(item)
    elif isinstance(value, str):
        yield value
    else:
        yield json.dumps(value, sort_keys=True, ensure_ascii=False)


def _is_inside(destination: str) -> bool:
    return is_confined(destination) and _REFERENCE not in destination


def _may_hold_secrets(destination: str) -> bool:
    return any(_SECRET_PLACE.fullmatch(part) for part in re.split(r"[/\\]", destination.lower()))


def _unknown_tool(action: ProposedAction, _facts: Facts) -> Verdict | None:
    if action.risk is not None:
        return None
    return Verdict(Decision.DENY, "unknown_tool", f"The device {action.device_id!r} offers no tool {action.tool!r}.")


def _approved(action: ProposedAction, facts: Facts) -> Verdict | None:
    if action_hash(action) not in facts.approved_hashes:
        return None
    return Verdict(Decision.ALLOW, "approved", "A person has approved exactly this action.")


def _read(action: ProposedAction, facts: Facts) -> Verdict | None:
    if action.risk is not Risk.READ:
        return None
    secret = [place for place in action.destinations if _may_hold_secrets(place)]
    secret = [place for place in secret if not is_named(place, facts.trusted_text)]
    if secret:
        reason = f"It reads {_listed(secret)}, where secrets usually lie and which the request does not name."
        return Verdict(Decision.ASK, "read_secret", reason)
    outside = [place for place in action.destinations if not _is_inside(place)]
    if not outside:
        return Verdict(Decision.ALLOW, "read_inside", "It only reads, within the device's folder.")
    unnamed = [place for place in outside if not is_named(place, facts.trusted_text)]
    if not unnamed:
        return Verdict(Decision.ALLOW, "read_named", "It only reads, at a place that the request names.")
    reason = f"It reads outside the device's folder, at {_listed(unnamed)}, which the request does not name."
    return Verdict(Decision.ASK, "read_elsewhere", reason)


def _suspicious(action: ProposedAction, facts: Facts) -> Verdict | None:
    if not facts.suspicions:
        return None
    signs = ", ".join(facts.suspicions)
    reason = f"Something that was read tries to give orders ({signs}), and this action changes something."
    return Verdict(Decision.ASK, "suspicious", reason)


def _write(action: ProposedAction, facts: Facts) -> Verdict | None:
    if action.risk not in (Risk.UNDOABLE, Risk.WRITE):
        return None
    if not action.destinations:
        return Verdict(Decision.ASK, "write_unnamed", f"{action.tool} changes something and does not say where.")
    unnamed = [place for place in action.destinations if not is_named(place, facts.trusted_text)]
    if unnamed:
        reason = f"It changes {_listed(unnamed)}, which the request does not name."
        return Verdict(Decision.ASK, "write_unnamed", reason)
    return Verdict(Decision.ALLOW, "write_named", "It changes only what the request names.")


def _outward(action: ProposedAction, _facts: Facts) -> Verdict | None:
    if action.risk is Risk.EXTERNAL:
        return Verdict(Decision.ASK, "outward", f"{action.tool} has an effect outside this device.")
    if action.risk is Risk.IRREVERSIBLE:
        return Verdict(Decision.ASK, "outward", f"What {action.tool} does cannot be taken back.")
    return None


def _listed(places: list[str]) -> str:
    shown = ", ".join(repr(place if len(place) <= 80 else place[:79] + "…") for place in places[:3])
    return shown + (f" and {len(places) - 3} more" if len(places) > 3 else "")


RULES: tuple[Rule, ...] = (_unknown_tool, _approved, _read, _suspicious, _write, _outward)
