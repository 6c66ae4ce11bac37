"""Reading a shell command line into the simple commands that it would run, without running anything.

It understands what is needed to judge a command: quoting, operators, redirections, here-documents, substitutions at
any depth. It is no shell: control structures are flattened into their commands, and what cannot be known beforehand is
marked as unknown. Words are plain strings in which a variable stands between two marks and an unknown part is a mark.
"""

from __future__ import annotations

import re

import msgspec

__all__ = ["MAX_LENGTH", "UNKNOWN", "VARIABLE", "Redirect", "Simple", "Unreadable", "parse"]

#: Stands in a word for a part that only running can tell (a substitution, an expansion with an operator).
UNKNOWN = "\ue002"
#: A variable's name between its marks.
VARIABLE = re.compile("\ue000([A-Za-z_0-9@*#?!$-]+)\ue001")

MAX_LENGTH = 200_000
_MAX_DEPTH = 10
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*|[0-9@*#?!$-]")
_MARKS = re.compile("[\ue000-\ue005]")
#: Unquoted { , } while a word is read: only those can be a brace expansion.
_BRACES = {"{": "\ue003", ",": "\ue004", "}": "\ue005"}
_BACK = {ord(mark): ch for ch, mark in _BRACES.items()}
_ALTERNATIVES = re.compile(
    "\ue003([^\ue003\ue005]*\ue004[^\ue003\ue005]*|[^\ue003-\ue005]+\\.\\.[^\ue003-\ue005]+)\ue005"
)
_LITERAL = re.compile("\ue003[^\ue003-\ue005]*\ue005")
_MAX_ALTERNATIVES = 500
_REDIRECT = re.compile(r"(\d*|&)(>>|>\||>&|<<<|<<-?|<&|<>|>|<)")


class Unreadable(Exception):
    """The text cannot be read as a command line: an open quote or bracket, or it is nested too deeply."""


class Redirect(msgspec.Struct, frozen=True):
    """`operator` without its descriptor (`>`, `>>`, `<`, `>&` …) and the word it points to."""

    operator: str
    target: str


class Simple(msgspec.Struct, frozen=True, kw_only=True):
    """One simple command. `words` are assignments, name and arguments in order; `(` and `)` alone mark a subshell.

    `substitutions` are the commands inside its words, `stdin` the text of its here-document, `sources` the first words
    of the commands before it in the same pipeline. `after` is the operator before it (`&&`, `||`, `|`, empty for
    anything else); `piped` and `background` say that what it sets stays with it.
    """

    words: tuple[str, ...]
    redirects: tuple[Redirect, ...] = ()
    substitutions: tuple[Simple, ...] = ()
    stdin: str = ""
    sources: tuple[str, ...] = ()
    background: bool = False
    after: str = ""
    piped: bool = False


def parse(text: str, depth: int = 0) -> list[Simple]:
    """Return the simple commands of `text` in order. Raises Unreadable."""
    if depth > _MAX_DEPTH:
        raise Unreadable("it is nested too deeply")
    if len(text) > MAX_LENGTH:
        raise Unreadable(f"it is longer than {MAX_LENGTH} characters")
    try:
        return _Parser(_MARKS.sub("\ufffd", text), depth).run()
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None


class _Parser:
    def __init__(self, text: str, depth: int) -> None:
        self.text = text.replace("\\\n", "")
        self.at = 0
        self.depth = depth
        self.found: list[Simple] = []
        self.words: list[str] = []
        self.redirects: list[Redirect] = []
        self.inner: list[Simple] = []
        self.stdin = ""
        self.sources: list[str] = []
        self.after = ""
        self.pending: list[tuple[str, bool, bool]] = []  # here-documents: end word, quoted, tabs stripped

    def run(self) -> list[Simple]:
        """Read to the end."""
        while self.at < len(self.text):
            self.step()
        self.close()
        return self.found

    def step(self) -> None:
        """Read one token."""
        ch = self.text[self.at]
        redirect = _REDIRECT.match(self.text, self.at)
        if ch == "\n":
            self.at += 1
            self.read_heredocs()
            self.close()
        elif ch in " \t":  # what else looks like a blank is part of a word for a shell
            self.at += 1
        elif ch == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif self.text.startswith(("<(", ">("), self.at):
            self.words.extend(self.spread())
        elif redirect is not None:
            self.redirect(redirect)
        elif ch in ";&|":
            self.operator(ch)
        elif ch in "()":
            self.at += 1
            self.close()
            self.found.append(Simple(words=(ch,)))
        else:
            self.words.extend(self.spread())

    def operator(self, ch: str) -> None:
        """Read ; & && | || |& and end the command before it."""
        double = self.text.startswith(ch * 2, self.at)
        self.at += 2 if double or self.text.startswith("|&", self.at) else 1
        if ch == "|" and not double:
            name = next((word for word in self.words if not is_assignment(word)), "")
            sources = [*self.sources, name]
            self.close(piped=True)
            self.sources = sources
        else:
            self.close(background=ch == "&" and not double)
        self.after = ch * 2 if double and ch != ";" else "|" if ch == "|" else ""

    def close(self, *, background: bool = False, piped: bool = False) -> None:
        """End the simple command that is being read."""
        if self.words or self.redirects:
            self.found.append(
                Simple(
                    words=tuple(self.words),
                    redirects=tuple(self.redirects),
                    substitutions=tuple(self.inner),
                    stdin=self.stdin,
                    sources=tuple(self.sources),
                    background=background,
                    after=self.after,
                    piped=piped,
                )
            )
            self.after = ""
        self.words, self.redirects, self.inner, self.stdin, self.sources = [], [], [], "", []

    def redirect(self, match: re.Match[str]) -> None:
        """Read a redirection and its target."""
        operator = match.group(2)
        if match.group(1) == "&" and operator not in {">", ">>"}:
            self.operator("&")
            return
        self.at = match.end()
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        if self.at >= len(self.text):
            raise Unreadable("a redirection has no target")
        quoted = self.text[self.at] in "'\"\\"
        target = self.word().translate(_BACK)
        if operator in {"<<", "<<-"}:
            self.pending.append((target, quoted, operator == "<<-"))
        elif operator == "<<<":
            self.stdin += target + "\n"
        else:
            self.redirects.append(Redirect(operator, target))

    def read_heredocs(self) -> None:
        """Read the bodies of the here-documents announced on the line before."""
        pending, self.pending = self.pending, []
        for end, quoted, strip in pending:
            lines = []
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                stop = len(self.text) if stop < 0 else stop
                line = self.text[self.at : stop]
                self.at = stop + 1
                if (line.lstrip("\t") if strip else line) == end:
                    break
                lines.append(line)
            self.at = min(self.at, len(self.text))
            body = "\n".join(lines)
            self.stdin += body + "\n"
            if not quoted:
                self.expansions(body)

    def spread(self) -> list[str]:
        """Read one word and return what its braces make of it."""
        done: list[str] = []
        open_ = [self.word()]
        while open_:
            word = open_.pop(0)
            match = _ALTERNATIVES.search(word)
            if match is None:
                literal = _LITERAL.sub(lambda found: found.group().translate(_BACK), word)
                if literal != word:
                    open_.insert(0, literal)
                else:
                    done.append(word.translate(_BACK))
                continue
            found = match.group(1).split("\ue004") if "\ue004" in match.group(1) else [UNKNOWN]
            open_ = [word[: match.start()] + one + word[match.end() :] for one in found] + open_
            if len(open_) + len(done) > _MAX_ALTERNATIVES:
                raise Unreadable("its braces stand for too many words")
        return done

    def word(self) -> str:
        """Read one word with its quotes and expansions; unquoted braces and commas are marked."""
        out: list[str] = []
        if self.text[self.at] == "~" and re.match(r"~(?=[/\s;&|)]|$)", self.text[self.at :]):
            out.append("\ue000HOME\ue001")
            self.at += 1
        start = self.at
        while self.at < len(self.text):
            ch = self.text[self.at]
            array = ch == "(" and out[-1:] == ["="] and is_assignment("".join(out))
            process = ch in "<>" and self.text.startswith("(", self.at + 1)
            if ch in " \t\n;&|()<>" and not array and not process:
                break
            if process:
                self.inner.extend(parse(self.bracketed(self.at + 2), self.depth + 1))
                out.append(UNKNOWN)
            elif ch == "\\":
                out.append(self.text[self.at + 1 : self.at + 2])
                self.at += 2
            elif ch == "'":
                out.append(self.single())
            elif ch == '"':
                out.append(self.double())
            elif ch in "$`":
                out.append(self.expansion())
            elif array:
                out.append(self.expansions(self.bracketed(self.at + 1)))
            else:
                out.append(_BRACES.get(ch, ch))
                self.at += 1
        if self.at == start and not out:
            self.at += 1  # never stand still
        return "".join(out)

    def single(self) -> str:
        """Read '…'."""
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise Unreadable("a quote is not closed")
        value = self.text[self.at + 1 : end]
        self.at = end + 1
        return value

    def double(self) -> str:
        """Read "…" with what it expands."""
        out: list[str] = []
        self.at += 1
        while self.at < len(self.text):
            ch = self.text[self.at]
            if ch == '"':
                self.at += 1
                return "".join(out)
            if ch == "\\" and self.text[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\"):
                out.append(self.text[self.at + 1])
                self.at += 2
            elif ch in "$`":
                out.append(self.expansion())
            else:
                out.append(ch)
                self.at += 1
        raise Unreadable("a quote is not closed")

    def expansion(self) -> str:
        """Read $name, ${…}, $(…), $((…)), $'…' or `…`; commands inside are kept, the result is marked."""
        text, at = self.text, self.at
        if text[at] == "`":
            end = at + 1
            while end < len(text) and text[end] != "`":
                end += 2 if text[end] == "\\" else 1
            if end >= len(text):
                raise Unreadable("a backtick is not closed")
            self.at = end + 1
            self.inner.extend(parse(re.sub(r"\\([`$\\])", r"\1", text[at + 1 : end]), self.depth + 1))
            return UNKNOWN
        if text.startswith("$((", at):
            body = self.bracketed(at + 2)
            self.expansions(body)
            return UNKNOWN
        if text.startswith("$(", at):
            self.inner.extend(parse(self.bracketed(at + 2), self.depth + 1))
            return UNKNOWN
        if text.startswith("${", at):
            end = text.find("}", at)
            if end < 0:
                raise Unreadable("a ${ is not closed")
            name = text[at + 2 : end]
            if _NAME.fullmatch(name):
                self.at = end + 1
                return f"\ue000{name}\ue001"
            self.expansions(self.bracketed(at + 2, "{", "}"))
            return UNKNOWN
        if text.startswith("$'", at):
            self.at += 1
            body = self.single()
            return body if "\\" not in body else UNKNOWN
        name_match = _NAME.match(text, at + 1)
        if name_match is None:
            self.at += 1
            return "$" if text[at + 1 : at + 2] != '"' else ""
        self.at = name_match.end()
        return f"\ue000{name_match.group()}\ue001"

    def expansions(self, body: str) -> str:
        """Keep the commands inside a text that is expanded but not split into commands; returns a mark."""
        inner = _Parser('"' + body.replace('"', "") + ' "', self.depth + 1)
        if self.depth >= _MAX_DEPTH:
            raise Unreadable("it is nested too deeply")
        inner.double()
        self.inner.extend(inner.inner)
        return UNKNOWN

    def bracketed(self, start: int, opening: str = "(", closing: str = ")") -> str:
        """Return the text from `start` to the bracket that closes it, and go behind it."""
        level, at = 1, start
        while at < len(self.text):
            ch = self.text[at]
            if ch == "\\":
                at += 1
            elif ch == "'":
                end = self.text.find("'", at + 1)
                at = len(self.text) if end < 0 else end
            elif ch == '"':
                at = self.skip_double(at)
            elif ch == opening:
                level += 1
            elif ch == closing:
                level -= 1
                if level == 0:
                    self.at = at + 1
                    return self.text[start:at]
            at += 1
        raise Unreadable(f"a {opening} is not closed")

    def skip_double(self, at: int) -> int:
        """Return the position of the quote that closes the one at `at`."""
        at += 1
        while at < len(self.text) and self.text[at] != '"':
            if self.text.startswith("$(", at):
                saved = self.at
                self.bracketed(at + 2)
                at, self.at = self.at - 1, saved
            elif self.text[at] == "\\":
                at += 1
            at += 1
        return at


def is_assignment(word: str) -> bool:
    """Whether a word sets a variable."""
    return re.match(r"[A-Za-z_][A-Za-z_0-9]*(\[[^]]*\])?\+?=", word) is not None
