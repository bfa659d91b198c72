"""`keylatch run` at a terminal: what somebody types, and what is seen. Called by terminal.rs with the
binary, the URL and the name of a scenario; each is a function below."""

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time

BINARY, URL, SCENARIO = sys.argv[1:4]
HANG = 60


class Terminal:
    """A terminal with a program in it."""

    def __init__(self, *command):
        self.process, self.keys = pty.fork()
        if self.process == 0:
            os.environ.update(KEYLATCH_URL=URL, PS1="$ ", TERM="dumb")
            os.environ.pop("ENV", None)
            os.execvp(command[0], command)
        self.seen = ""

    def type(self, text):
        os.write(self.keys, text.encode())

    def until(self, text):
        """Reads until something is seen after what was seen before."""
        end = time.time() + HANG
        while text not in self.seen:
            assert time.time() < end, f"never seen: {text!r}, but {self.seen!r}"
            if not select.select([self.keys], [], [], 0.1)[0]:
                continue
            try:
                self.seen += os.read(self.keys, 4096).decode(errors="replace")
            except OSError:
                raise AssertionError(f"ended before {text!r}: {self.seen!r}") from None
        self.seen = self.seen.split(text, 1)[1]

    def end(self):
        """All that is still seen, and how the program ended."""
        try:
            while data := os.read(self.keys, 4096):
                self.seen += data.decode(errors="replace")
        except OSError:
            pass  # Linux says so when the last program has closed it
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1]), self.seen


def run(script, *options):
    return [BINARY, "run", "k", *options, "--", "sh", "-c", script]


def in_shell(script, *options):
    return " ".join(f"'{word}'" for word in run(script, *options))


def shell():
    terminal = Terminal("bash", "--norc", "--noprofile", "-i")
    terminal.until("$ ")
    return terminal


def a_command_reads_what_is_typed():
    terminal = Terminal(*run("echo ready; read line; echo got $line"))
    terminal.until("ready")
    terminal.type("hello\n")
    terminal.until("got hello")
    assert terminal.end()[0] == 0


def it_also_reads_if_it_does_so_at_once():
    for _ in range(20):
        terminal = Terminal(*run("read line; echo got $line"))
        terminal.type("hello\n")
        terminal.until("got hello")
        assert terminal.end()[0] == 0


def interrupting_interrupts_the_command():
    terminal = Terminal(*run("trap 'echo heard; exit 3' INT; echo ready; while :; do sleep 0.05; done"))
    terminal.until("ready")
    terminal.type("\x03")
    terminal.until("heard")
    assert terminal.end()[0] == 3
    # Without a trap it ends as one would end that ^C has ended.
    terminal = Terminal(*run("echo ready; exec sleep 600"))
    terminal.until("ready")
    terminal.type("\x03")
    assert terminal.end()[0] == -signal.SIGINT


def interrupting_ends_the_script_around_it():
    script = f"{in_shell('echo ready; exec sleep 600')}; echo and on"
    for around in ("sh", "bash"):
        terminal = Terminal(around, "-c", script)
        terminal.until("ready")
        terminal.type("\x03")
        code, seen = terminal.end()
        assert "and on" not in seen, seen
        assert code != 0


def it_is_stopped_and_continued_as_one_job():
    terminal = shell()
    terminal.type(in_shell("echo ready; read line; echo got $line", "--lease", "10m") + "\n")
    terminal.until("ready\r\n")
    terminal.type("\x1a")
    terminal.until("Stopped")
    terminal.until("$ ")
    # The shell has the terminal, and the lock is still held.
    terminal.type("echo back-$((1 + 1))\n")
    terminal.until("back-2\r\n")
    listed = subprocess.run([BINARY, "ls", "--url", URL], capture_output=True, text=True, timeout=HANG)
    assert " k " in listed.stdout, listed
    terminal.type("fg\n")
    terminal.until("fg\r\n")
    terminal.type("hello\n")
    terminal.until("got hello\r\n")
    terminal.until("$ ")
    terminal.type("exit\n")
    assert terminal.end()[0] == 0


def in_the_background_it_stops_when_it_wants_the_terminal():
    terminal = shell()
    # -b: it is said at once, not with the next prompt.
    terminal.type("set -b\n")
    terminal.until("$ ")
    terminal.type(in_shell("read line; echo got $line", "--lease", "10m") + " &\n")
    terminal.until("Stopped")
    terminal.type("fg\n")
    terminal.until("fg\r\n")
    terminal.type("hello\n")
    terminal.until("got hello\r\n")
    terminal.type("exit\n")
    assert terminal.end()[0] == 0


def a_killed_command_leaves_the_terminal_as_it_was():
    terminal = Terminal("sh", "-c", f"{in_shell('stty raw -echo; echo ready; exec sleep 600')}; echo code $?; read line; echo got $line")
    before = termios.tcgetattr(terminal.keys)[3]
    terminal.until("ready")
    assert termios.tcgetattr(terminal.keys)[3] != before
    listed = subprocess.run(
        [BINARY, "ls", "--url", URL], capture_output=True, text=True, timeout=HANG
    ).stdout
    token = listed.splitlines()[1].split()[0]
    subprocess.run([BINARY, "revoke", token, "--reason", "enough", "--url", URL], check=True, timeout=HANG)
    terminal.until("code 76")
    assert termios.tcgetattr(terminal.keys)[3] == before
    # And the script around it can read again.
    terminal.type("hello\n")
    terminal.until("got hello")
    assert terminal.end()[0] == 0


globals()[SCENARIO]()
