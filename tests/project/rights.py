"""Writes the tables of rights in SECURITY.md and docs/operations.md, made of the roles and policies in `config`.

   python -m tests.project.rights

A table is between two comments, `<!-- rights: COMPONENT -->` and `<!-- end of rights -->`; the rest of a page is not
changed. `claims` reads the sentences that deny a right to a component, and `granted` tells whether a role grants it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.kustomize import plainly
from tests.support.places import CONFIG, DOCS, ROOT

#: Component in texts -> its folder in `config`, and its ServiceAccount.
COMPONENTS = {
    "scheduler": ("default", "agent-scheduler"),
    "controllers": ("controllers", "agent-scheduler-controllers"),
    "webhook": ("webhook", "agent-scheduler-webhook"),
}
PAGES = (ROOT / "SECURITY.md", DOCS / "operations.md")
_PLACE = re.compile(r"(<!-- rights: (\w+) -->\n).*?(<!-- end of rights -->\n)", re.DOTALL)
_ORDER = ("get", "list", "watch", "create", "update", "patch", "delete")


class Right(NamedTuple):
    """A verb for a kind. `names` is empty for all objects, `namespace` for all namespaces."""

    group: str
    resource: str
    verb: str
    names: tuple[str, ...] = ()
    namespace: str = ""

    @property
    def kind(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


def rights(component: str) -> list[Right]:
    """Return the rights of all roles that are bound to the component's account."""
    folder, account = COMPONENTS[component]
    objects = plainly(CONFIG / folder)
    roles = {(each["kind"], each["metadata"]["name"]): each for each in objects if "rules" in each}
    found = []
    for binding in objects:
        if not any(each["name"] == account for each in binding.get("subjects") or ()):
            continue
        role = roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
        namespace = binding["metadata"]["namespace"] if binding["kind"] == "RoleBinding" else ""
        for rule in role["rules"]:
            names = tuple(rule.get("resourceNames", ()))
            found += [
                Right(group, resource, verb, names, namespace)
                for group in rule.get("apiGroups", ())
                for resource in rule.get("resources", ())
                for verb in rule["verbs"]
            ]
    return found


def policies(component: str) -> list[tuple[str, list[str]]]:
    """Return the policies about the component: their names, and the messages of their validations."""
    objects = plainly(CONFIG / COMPONENTS[component][0])
    bound = {each["spec"]["policyName"] for each in objects if each["kind"] == f"{_POLICY}Binding"}
    return [
        (each["metadata"]["name"], [one["message"] for one in each["spec"]["validations"]])
        for each in objects
        if each["kind"] == _POLICY and each["metadata"]["name"] in bound
    ]


_POLICY = "ValidatingAdmissionPolicy"


# ---- tables


def table(component: str) -> str:
    """Return the table of the component's rights, and the list of what its policies forbid."""
    verbs: dict[tuple[str, tuple[str, ...], str], set[str]] = defaultdict(set)
    for each in rights(component):
        verbs[each.kind, each.names, each.namespace].add(each.verb)
    kinds: dict[tuple[tuple[str, ...], tuple[str, ...], str], list[str]] = defaultdict(list)
    for (kind, names, namespace), found in verbs.items():
        kinds[tuple(sorted(found, key=_ORDER.index)), names, namespace].append(kind)
    rows = []
    for (found, names, namespace), of in kinds.items():
        limits = [f"named {', '.join(f'`{name}`' for name in names)}"] if names else []
        limits += [f"in `{namespace}`"] if namespace else []
        rows.append(f"| {', '.join(found)} | {', '.join(f'`{kind}`' for kind in sorted(of))} | {' '.join(limits)} |")
    lines = ["| Verbs | Kinds | Only |", "| --- | --- | --- |", *sorted(rows)]
    for name, messages in policies(component):
        lines += ["", f"The policy `{name}` ensures:", "", *(f"- {_sentence(each)}" for each in messages)]
    return "\n".join(lines) + "\n"


def _sentence(message: str) -> str:
    return f"{message[0].upper()}{message[1:]}."


def filled(text: str) -> str:
    """Return the text of a page with its tables as the roles say."""
    return _PLACE.sub(lambda place: f"{place[1]}\n{table(place[2])}\n{place[3]}", text)


# ---- sentences

_SENTENCE = re.compile(r"[^.!?]*?\b(?:cannot|can not)\b[^.!?]*[.!?]")
_SUBJECT = re.compile(r"\b(?:the|The) (scheduler|controllers|webhook)(?:'s token)? (?:cannot|can not)\b")
_BULLET = re.compile(r"^- \*\*(Scheduler|Controllers|Webhook)\.\*\*(.*?)(?=^- |^#|\Z)", re.MULTILINE | re.DOTALL)
_VERBS = {
    "read": ("get", "list", "watch"),
    "create": ("create",),
    "change": ("update", "patch"),
    "delete": ("delete", "deletecollection"),
    "evict": ("create",),
    "write": ("create", "update", "patch", "delete", "deletecollection"),
}
_PART = re.compile(rf"({'|'.join(_VERBS)}) ([A-Za-z]+)")


class Claim(NamedTuple):
    """A sentence that denies a component rights: (verb of the text, kind of the text); None if it is not understood."""

    component: str
    sentence: str
    denied: tuple[tuple[str, str], ...] | None


def claims(text: str) -> Iterator[Claim]:
    """Yield the sentences of a text that say what a component cannot do.

    Their form is `The scheduler cannot read Secrets, create pods, or write nodes`. In a paragraph that begins with the
    bold name of a component, the subject may be `it` or `they`.
    """
    for bullet in _BULLET.finditer(text):
        for sentence in _SENTENCE.findall(bullet[2]):
            if re.search(r"\b(?:[Ii]t|[Tt]hey) (?:cannot|can not)\b", sentence):
                yield _claim(bullet[1].lower(), sentence)
    for sentence in _SENTENCE.findall(text):
        if subject := _SUBJECT.search(sentence):
            yield _claim(subject[1], sentence)


def _claim(component: str, sentence: str) -> Claim:
    plain = " ".join(sentence.replace("#", " ").split())
    said = re.split(r"\b(?:cannot|can not)\b", plain)[1].strip(" .!?")
    parts = [re.sub(r"^(?:and|or) ", "", each.strip()) for each in re.split(r",|\bor\b", said) if each.strip()]
    denied = [_PART.fullmatch(each) for each in parts]
    known = all(denied) and parts
    return Claim(component, plain, tuple((each[1], each[2]) for each in denied if each) if known else None)


def granted(component: str, verb: str, kind: str) -> list[Right]:
    """Return the rights that contradict a claim."""
    resource = "pods/eviction" if verb == "evict" else kind.lower()
    return [
        each for each in rights(component) if each.resource in (resource, "*") and each.verb in (*_VERBS[verb], "*")
    ]


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the pages and manifests that speak about rights."""
    for path in (*PAGES, *sorted(CONFIG.glob("*/rbac*.yaml")), *sorted(CONFIG.glob("*/policy.yaml"))):
        yield path, re.sub(r"\n *# ", " ", path.read_text()) if path.suffix == ".yaml" else path.read_text()


def main() -> None:
    for page in PAGES:
        page.write_text(filled(page.read_text()))


if __name__ == "__main__":
    main()
