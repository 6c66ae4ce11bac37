"""What is known of programs: which delete, install, publish, control the machine, and which of their words are options
with a value or the files they write. Tables only; `danger.py` reads commands by them.
"""

from __future__ import annotations

import re

__all__ = [
    "AGENTS",
    "CODE",
    "CODE_FLAGS",
    "COMMANDS_IN_VARIABLES",
    "CONTAINER_READS",
    "DELETES",
    "DESTINATIONS",
    "GIT_DANGEROUS",
    "INSTALLERS",
    "INSTALL_WORDS",
    "KEYWORDS",
    "KEY_PLACES",
    "KILLS",
    "LOADS",
    "MACHINE",
    "NETWORK",
    "OUTPUT_OPTIONS",
    "PRIVILEGE",
    "PUBLISHERS",
    "READS_TREES",
    "REMOTE",
    "SECRET_COMMANDS",
    "SHELLS",
    "SUBCOMMANDS",
    "SYSTEM_KEY_PLACES",
    "WRAPPERS",
    "WRITES_ALL",
]

KEYWORDS = frozenset({"if", "then", "elif", "else", "fi", "while", "until", "do", "done", "{", "}", "!", "esac"})

SHELLS = frozenset(
    {
        "sh",
        "bash",
        "zsh",
        "dash",
        "ksh",
        "fish",
        "ash",
        "busybox",
        "csh",
        "tcsh",
        "mksh",
        "rbash",
        "yash",
        "nu",
        "toybox",
        "xonsh",
        "elvish",
    }
)

#: Where keys and logins lie, below the home directory and below the root.
KEY_PLACES: tuple[str, ...] = tuple(
    """.ssh .gnupg .aws .azure .config/gcloud .config/gh .config/hub .config/op .config/rclone .kube .docker/config.json
    .netrc .git-credentials .config/git/credentials .npmrc .pypirc .cargo/credentials .cargo/credentials.toml .pgpass
    .my.cnf .password-store .local/share/keyrings .vault-token .terraform.d/credentials.tfrc.json .huggingface/token
    .cache/huggingface/token .mozilla .config/google-chrome .config/chromium .bash_history .zsh_history
    .hermes/.env .hermes/auth.json .claude/.credentials.json .codex/auth.json .config/containers/auth.json""".split()
)
SYSTEM_KEY_PLACES: tuple[str, ...] = tuple(
    "etc/shadow etc/gshadow etc/sudoers etc/sudoers.d etc/ssl/private run/secrets var/run/secrets proc/kcore".split()
)

#: Programs whose first word says what they do.
SUBCOMMANDS = frozenset(
    """git npm pnpm yarn pip pip3 uv poetry cargo go docker podman kubectl helm gh glab apt apt-get brew gem conda
    terraform systemctl make npx aws gcloud az hf""".split()
)

#: Programs that read whole trees.
READS_TREES = frozenset(
    {"cp", "tar", "bsdtar", "zip", "7z", "rsync", "grep", "egrep", "rg", "ag", "ack", "cpio", "pax"}
)

#: Variables whose value is a command that some program runs.
COMMANDS_IN_VARIABLES = frozenset(
    """GIT_SSH_COMMAND GIT_SSH GIT_EDITOR GIT_PAGER GIT_SEQUENCE_EDITOR GIT_EXTERNAL_DIFF GIT_ASKPASS GIT_PROXY_COMMAND
    SSH_ASKPASS SUDO_ASKPASS PAGER MANPAGER SYSTEMD_PAGER EDITOR VISUAL BROWSER LESSOPEN LESSCLOSE RSYNC_RSH CVS_RSH
    SVN_SSH PROMPT_COMMAND FCEDIT SHELL""".split()
)
#: Variables that make other programs load a file or take an order.
LOADS = re.compile(
    r"LD_(?:PRELOAD|AUDIT)|DYLD_INSERT_LIBRARIES|BASH_ENV|ENV|PS4|IFS|BASHOPTS|SHELLOPTS|PERL5OPT|PERL5DB|RUBYOPT"
    r"|PYTHONSTARTUP|PYTHONINSPECT|PYTHONHOME|PYTHONWARNINGS|NODE_OPTIONS|JAVA_TOOL_OPTIONS|TAR_OPTIONS|MAKEFLAGS"
    r"|GIT_CONFIG.*|GIT_EXEC_PATH|GIT_TEMPLATE_DIR|GIT_DIR|GIT_WORK_TREE|ZDOTDIR|GCONV_PATH|LESS|NODE_REPL_HISTORY"
    r"|HERMES_.*|CDPATH|PATH_SEPARATOR|BASH_FUNC_.*"
)

#: Programs that talk to a machine named by their words.
NETWORK = frozenset(
    """curl wget fetch aria2c http https ssh scp sftp ftp lftp telnet nc ncat netcat rsync mosh ping dig nslookup host
    whois""".split()
)

PRIVILEGE = frozenset({"sudo", "doas", "su", "pkexec", "runuser", "run0", "gosu", "setpriv", "visudo"})

DELETES = frozenset({"rm", "rmdir", "unlink", "shred", "srm", "wipe", "trash", "trash-put"})

KILLS = frozenset({"kill", "pkill", "killall", "killall5", "skill", "xkill", "taskkill"})

MACHINE = frozenset(
    """mkfs mke2fs mkswap fdisk sfdisk cfdisk gdisk sgdisk parted wipefs blkdiscard hdparm losetup cryptsetup lvremove
    vgremove pvremove mdadm zpool zfs systemctl service rc-service initctl launchctl shutdown reboot halt poweroff init
    telinit mount umount swapoff swapon useradd userdel usermod adduser deluser groupadd groupdel passwd chpasswd chsh
    iptables ip6tables nft ufw firewall-cmd modprobe rmmod insmod chroot nsenter update-rc.d chkconfig loginctl
    hostnamectl timedatectl at batch systemd-run dmsetup setcap chattr setfacl unshare capsh machinectl bwrap kexec
    debugfs start-stop-daemon dbus-send gdbus busctl xdotool ydotool ctr crictl virsh lxc-attach""".split()
)

AGENTS = frozenset(
    """hermes claude codex gemini aider opencode goose amp copilot cursor-agent qwen crush droid openhands
    batch_runner.py""".split()
)

#: Programs that run another command: options that take a value, and how many words stand before the command.
WRAPPERS: dict[str, tuple[frozenset[str], int]] = {
    "env": (frozenset({"-u", "--unset", "-C", "--chdir"}), 0),
    "nohup": (frozenset(), 0),
    "nice": (frozenset({"-n", "--adjustment"}), 0),
    "ionice": (frozenset({"-c", "-n", "--class", "--classdata"}), 0),
    "chrt": (frozenset({"-T", "-P", "-D"}), 1),
    "taskset": (frozenset(), 1),
    "stdbuf": (frozenset({"-i", "-o", "-e"}), 0),
    "setsid": (frozenset(), 0),
    "time": (frozenset({"-f", "-o", "--format", "--output"}), 0),
    "timeout": (frozenset({"-k", "-s", "--kill-after", "--signal"}), 1),
    "exec": (frozenset({"-a"}), 0),
    "command": (frozenset(), 0),
    "builtin": (frozenset(), 0),
    "coproc": (frozenset(), 0),
    "unbuffer": (frozenset(), 0),
    "strace": (frozenset({"-o", "-e", "-p", "-s", "-P"}), 0),
    "xvfb-run": (frozenset({"-n", "-s", "-e"}), 0),
    "watch": (frozenset({"-n", "--interval"}), 0),
    "flock": (frozenset({"-w", "--timeout", "-E"}), 1),
    "xargs": (frozenset({"-I", "-n", "-P", "-L", "-d", "-a", "-E", "-s", "--max-args", "--max-procs", "--replace"}), 0),
    "parallel": (frozenset({"-j", "--jobs", "-I", "-a"}), 0),
    "uvx": (frozenset(), 0),
    # what gains rights or another view of the machine needs consent by its name, and its command is judged as well
    "sudo": (frozenset("-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir".split()), 0),
    "doas": (frozenset({"-u", "-C"}), 0),
    "pkexec": (frozenset({"--user"}), 0),
    "runuser": (frozenset({"-u", "-g", "-G"}), 0),
    "gosu": (frozenset(), 1),
    "setpriv": (frozenset({"--reuid", "--regid", "--groups"}), 0),
    "chroot": (frozenset(), 1),
    "unshare": (frozenset({"-R", "-w", "-S", "-G", "--root", "--wd"}), 0),
    "firejail": (frozenset(), 0),
    "proot": (frozenset({"-r", "-b", "-w"}), 0),
    "fakeroot": (frozenset({"-l", "-s", "-i"}), 0),
    "prlimit": (frozenset({"-p", "--pid"}), 0),
    "numactl": (frozenset(), 0),
    "ltrace": (frozenset({"-o", "-e", "-p", "-s"}), 0),
    "valgrind": (frozenset(), 0),
    "setarch": (frozenset(), 0),
    "linux32": (frozenset(), 0),
    "linux64": (frozenset(), 0),
    "script": (frozenset({"-c", "--command", "-O", "-I", "-B", "-T", "-m"}), 0),
    "tini": (frozenset({"-p", "-e"}), 0),
    "dumb-init": (frozenset(), 0),
    "chronic": (frozenset(), 0),
    "ts": (frozenset(), 0),
    "faketime": (frozenset({"-f"}), 1),
    "rlwrap": (frozenset(), 0),
    "run-parts": (frozenset(), 0),
    "start-stop-daemon": (frozenset(), 0),
    "daemonize": (frozenset(), 0),
    "not": (frozenset(), 0),
}

INSTALLERS = frozenset(
    """pip pip3 pipx uv poetry pdm conda mamba micromamba npm pnpm yarn bun deno cargo go gem bundle composer apt
    apt-get aptitude dpkg rpm yum dnf microdnf zypper pacman yay apk brew port snap flatpak nix nix-env emerge winget
    choco scoop luarocks cpan cpanm opam stack cabal rustup gup asdf mise sdk helm krew playwright""".split()
)
INSTALL_WORDS = frozenset(
    """install i add ci get update upgrade dist-upgrade full-upgrade remove uninstall rm purge autoremove require sync
    develop create link unlink global dlx x init-env erase reinstall in -i -U -r -S -Syu -Sy -R --install --erase
    -Uvh -ivh -iA profile toolchain""".split()
)

PUBLISHERS: dict[str, frozenset[str]] = {
    "npm": frozenset({"publish", "unpublish", "deprecate"}),
    "pnpm": frozenset({"publish"}),
    "yarn": frozenset({"publish"}),
    "cargo": frozenset({"publish", "yank"}),
    "gem": frozenset({"push", "yank"}),
    "twine": frozenset({"upload"}),
    "uv": frozenset({"publish"}),
    "poetry": frozenset({"publish"}),
    "flit": frozenset({"publish"}),
    "hatch": frozenset({"publish"}),
    "docker": frozenset({"push"}),
    "podman": frozenset({"push"}),
    "gh": frozenset(
        {"create", "merge", "close", "delete", "edit", "comment", "review", "upload", "reopen", "run", "api", "fork"}
    ),
    "glab": frozenset({"create", "merge", "close", "delete", "update", "note", "api"}),
    "huggingface-cli": frozenset({"upload", "delete"}),
    "hf": frozenset({"upload", "delete"}),
    "vercel": frozenset({"deploy", "--prod"}),
    "netlify": frozenset({"deploy"}),
    "firebase": frozenset({"deploy"}),
    "kubectl": frozenset(
        {"apply", "create", "delete", "edit", "patch", "replace", "scale", "drain", "exec", "rollout", "cp", "run"}
    ),
    "helm": frozenset({"install", "upgrade", "uninstall", "rollback", "push"}),
    "terraform": frozenset({"apply", "destroy", "import", "taint"}),
    "tofu": frozenset({"apply", "destroy", "import"}),
    "pulumi": frozenset({"up", "destroy"}),
    "aws": frozenset({"cp", "mv", "rm", "sync", "rb", "mb", "run-instances", "terminate-instances", "invoke"}),
    "gcloud": frozenset({"create", "delete", "deploy", "update"}),
    "az": frozenset({"create", "delete", "update"}),
}

#: Programs that work on another machine.
REMOTE = frozenset(
    {
        "ssh",
        "scp",
        "sftp",
        "ftp",
        "lftp",
        "telnet",
        "nc",
        "ncat",
        "netcat",
        "socat",
        "mosh",
        "mail",
        "sendmail",
        "mailx",
        "mutt",
        "msmtp",
        "swaks",
        "rclone",
        "s3cmd",
        "s5cmd",
        "gsutil",
        "azcopy",
        "tftp",
        "smbclient",
        "ncftp",
        "ncftpput",
        "mosquitto_pub",
        "wormhole",
        "croc",
        "ngrok",
        "cloudflared",
        "lt",
        "tailscale",
        "rsh",
        "rlogin",
        "xdg-open",
    }
)

#: Commands that print keys, by their first words.
SECRET_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("gpg", "--export-secret-keys"),
    ("gpg", "-d"),
    ("security", "find-generic-password"),
    ("security", "find-internet-password"),
    ("secret-tool", "lookup"),
    ("pass", "show"),
    ("keyring", "get"),
    ("op", "read"),
    ("op", "item"),
    ("vault", "read"),
    ("vault", "kv"),
    ("bw", "get"),
    ("aws", "configure", "get"),
    ("aws", "sts"),
    ("gcloud", "auth"),
    ("gh", "auth", "token"),
    ("gh", "auth", "status"),
    ("kubectl", "config", "view"),
    ("git", "credential"),
    ("docker-credential-desktop",),
)

CONTAINER_READS = frozenset(
    {"ps", "images", "logs", "inspect", "version", "info", "stats", "top", "port", "history", "search", "--version"}
)

GIT_DANGEROUS: dict[str, tuple[str, tuple[str, ...], str]] = {
    # subcommand: (category, words of which one must be there (none: always), what it does)
    "push": ("push", (), "publishes commits (git push)"),
    "send-email": ("push", (), "sends patches by mail (git send-email)"),
    "reset": ("delete", ("--hard", "--merge", "--keep"), "throws changes away (git reset --hard)"),
    "clean": ("delete", (), "deletes untracked files (git clean)"),
    "restore": ("delete", (), "throws changes away (git restore)"),
    "rm": ("delete", (), "deletes files (git rm)"),
    "checkout": ("delete", ("--", "-f", "--force", "."), "throws changes away (git checkout of files)"),
    "switch": ("delete", ("-f", "--force", "--discard-changes"), "throws changes away (git switch --force)"),
    "branch": ("delete", ("-D", "-d", "--delete"), "deletes a branch"),
    "tag": ("delete", ("-d", "--delete"), "deletes a tag"),
    "stash": ("delete", ("drop", "clear"), "deletes stashed changes"),
    "worktree": ("delete", ("remove", "prune"), "deletes a worktree"),
    "update-ref": ("delete", ("-d", "--stdin"), "deletes a reference"),
    "reflog": ("delete", ("expire", "delete"), "deletes the log of references"),
    "gc": ("delete", ("--prune=now", "--aggressive"), "deletes unreachable commits"),
    "filter-branch": ("delete", (), "rewrites the history"),
    "filter-repo": ("delete", (), "rewrites the history"),
    "config": ("write_outside", ("--global", "--system"), "changes git's settings outside the working directory"),
    "remote": ("delete", ("remove", "rm"), "removes a remote"),
}

#: Where a program writes: the last argument, with -t naming it instead.
DESTINATIONS = frozenset({"cp", "install", "rsync", "ln", "link", "ditto"})
#: Every argument that is no option is written (or made, or changed).
WRITES_ALL = frozenset({"mv", "touch", "mkdir", "tee", "truncate", "mkfifo", "mknod", "mktemp", "split", "csplit"})

#: Options whose value is a file or directory that the program writes.
OUTPUT_OPTIONS: dict[str, tuple[str, ...]] = {
    "curl": ("-o", "--output", "--output-dir", "-c", "--cookie-jar", "-D", "--dump-header"),
    "wget": ("-O", "--output-document", "-P", "--directory-prefix", "-o", "--output-file"),
    "sort": ("-o", "--output"),
    "mktemp": ("-p", "--tmpdir"),
    "tar": ("-C", "--directory", "-f", "--file"),
    "bsdtar": ("-C", "--directory"),
    "unzip": ("-d",),
    "gcc": ("-o",),
    "g++": ("-o",),
    "cc": ("-o",),
    "clang": ("-o",),
    "rustc": ("-o",),
    "ffmpeg": (),
    "patch": ("-o", "-d", "--output", "--directory"),
    "pandoc": ("-o", "--output"),
    "openssl": ("-out",),
    "ssh-keygen": ("-f",),
    "git": ("-C", "--git-dir", "--work-tree"),
    "make": ("-C", "--directory"),
    "python": (),
    "dot": ("-o",),
    "jq": (),
    "7z": (),
    "zip": (),
    "cp": ("-t", "--target-directory"),
    "mv": ("-t", "--target-directory"),
    "ln": ("-t", "--target-directory"),
    "install": ("-t", "--target-directory"),
}

#: Interpreters and the options after which code stands.
CODE_FLAGS: dict[str, tuple[str, ...]] = {
    "python": ("-c",),
    "node": ("-e", "--eval", "-p", "--print"),
    "deno": ("eval",),
    "bun": ("-e", "--eval"),
    "perl": ("-e", "-E", "-ne", "-pe", "-i", "-pi", "-n", "-p"),
    "ruby": ("-e",),
    "php": ("-r", "-B", "-R", "-E"),
    "lua": ("-e",),
    "luajit": ("-e",),
    "tclsh": (),
    "guile": ("-c", "-e"),
    "Rscript": ("-e",),
    "julia": ("-e", "-E"),
    "elixir": ("-e",),
    "ghc": ("-e",),
    "groovy": ("-e",),
    "jshell": (),
    "osascript": ("-e",),
    "awk": (),
    "gawk": (),
    "mawk": (),
}

#: Code in other languages that deletes, starts programs or sends; judged by its words, since it cannot be read here.
CODE = re.compile(
    r"rmtree|os\.(?:remove|unlink|rmdir|removedirs|system|popen|exec|spawn|posix_spawn|kill|chmod|chown|truncate|rename"
    r"|replace|fork|symlink|link|setuid)"
    r"|\.unlink\(|\.rmdir\(|subprocess|pty\.spawn|__import__|\bexec\(|\beval\(|shutil\.(?:move|chown)|ctypes"
    r"|child_process|rmSync|unlinkSync|rimraf|fs\.(?:rm|unlink|rmdir)|execSync|spawnSync|process\.kill"
    r"|\bunlink\b|\bsystem\b|`|\bqx\b|\brmdir\b|FileUtils|File\.delete|IO\.popen|do shell script|Deno\.remove"
    r"|\bfork\b|importlib|getattr\(|globals\(|__builtins__|marshal|b64decode|fromhex|codecs|symlink|\bdlopen\b"
    r"|hardlink_to|\.ssh\b|/proc/|urlopen|http\.client|create_connection|requests\.|httpx|aiohttp|fetch\("
    r"|XMLHttpRequest|Deno\.Command|Bun\.spawn|Process\.spawn|Kernel|\bopen\b[^\n]{0,200}\|\s*[\"']"
    r"|while\s*\(?\s*(?:1|True|true)\b[^\n]{0,200}(?:append|\+=|push)"
    r"|\|&?\s*\"|getline|socket\.socket|urlopen\([^)]{0,200}data|requests\.(?:post|put|delete|patch)"
)
