r"""
Dockerfiles for test_corpus.py: what each is made of, and what must come of it.

`Case(text, ...)`: `files` is the context (default FILES), `args` build arguments, `target` a stage. Each is built by buildah from the same input and
the results are compared, file by file and in the configuration, unless buildah does not know the instruction: then `tree` lists what differs
from the base ({path: "kind mode uid:gid content"}, None = it is gone) and `config` the keys that are asked for. `differs` are
paths or configuration keys that are meant to be different from buildah's, with the reason and what they are here.

Reports of users: UR-090 (run-heredoc*, copy-heredoc), UR-091 (chown*, chmod*, copy-link-flag, add-*; flags that are not there: test_build_faults.py),
UR-092 (arg-*, env-*, platform-args), UR-094 (ignore-*), UR-095 (workdir*, config-user-dir, run-user*; test_build.py).
"""

import bz2
import dataclasses
import gzip
import lzma

from registry import tar_of

INNER = tar_of({"in/file": b"inner", "in/exec": b"#!"})
FILES = {
    "a": b"a", "b.txt": b"b", "c.txt": b"c", "dir": ("dir", 0o755), "dir/one": b"1", "dir/sub": ("dir", 0o700), "dir/sub/two": b"2",
    "dir/link": ("link", "one"), "dir/.hidden": b"h", "empty": ("dir", 0o750), "x.tar": INNER, "x.tar.gz": gzip.compress(INNER, mtime=0),
    "x.tar.bz2": bz2.compress(INNER), "x.tar.xz": lzma.compress(INNER), "text.gz": gzip.compress(b"text", mtime=0), "odd name": b"odd",
    "to-dir": ("link", "dir"), "to-a": ("link", "a"), "dangling": ("link", "nowhere"), "script.sh": b"#!/bin/sh\necho script $1 >/scripted\n",
}
IGNORED = {
    "keep": b"k", "drop.log": b"d", "sub/drop.log": b"d", "sub/deep/drop.log": b"d", "sub/keep": b"k", "dir/x": b"x", "dir/y": b"y", "axb": b"1",
    "axxb": b"2", "root": b"r", "sub/root": b"r", "tail ": b"t", "Dockerfile": b"FROM scratch\n", "temp-1": b"", "temp-2": b"",
}


@dataclasses.dataclass
class Case:
    text: str
    files: dict = None
    args: dict = dataclasses.field(default_factory=dict)
    target: str = None
    tree: dict = None               # None: buildah knows
    config: dict = dataclasses.field(default_factory=dict)
    differs: dict = dataclasses.field(default_factory=dict)
    core: bool = False


def ignoring(rules, **more):
    return Case("FROM scratch\nCOPY . /c/\n", files={**IGNORED, ".dockerignore": rules.encode()}, **more)


PATTERNS = "this buildah does not know patterns in ${...}"
HEREDOCS = "this buildah does not know here-documents"

CORPUS = {
    # --- COPY
    "copy-file": Case("FROM scratch\nCOPY a /a\n", core=True),
    "copy-into": Case("FROM scratch\nCOPY a b.txt /into/\n"),
    "copy-deep": Case("FROM scratch\nCOPY a /very/deep/place/a\n"),
    "copy-dir": Case("FROM scratch\nCOPY dir /dir\n", core=True),
    "copy-dir-slash": Case("FROM scratch\nCOPY dir/ /there/\n"),
    "copy-dir-dot": Case("FROM scratch\nCOPY dir/. /there\nCOPY ./dir/sub/.. /again/\n"),
    "copy-two-dirs": Case("FROM scratch\nCOPY dir empty /both/\n"),
    "copy-all": Case("FROM scratch\nCOPY . /all/\n"),
    "copy-empty": Case("FROM scratch\nCOPY empty /empty\n"),
    "copy-glob": Case("FROM scratch\nCOPY *.txt /globbed/\nCOPY d?r/o* /more/\nCOPY [ab]* /set/\n", core=True),
    "copy-glob-dirs": Case("FROM scratch\nCOPY d* /dirs/\n", files={"d1/f": b"1", "d2/g": b"2", "d3": b"3"}),
    "copy-json": Case('FROM scratch\nCOPY ["odd name", "/with blank/"]\n'),
    "copy-quoted": Case("FROM scratch\nENV N=\"odd name\"\nCOPY a \"/a b\"\nCOPY \"odd name\" /plain\n",
                        tree={"a b": "file 644 0:0 a", "plain": "file 644 0:0 odd"}),
    "copy-over": Case("FROM scratch\nCOPY dir /d\nCOPY b.txt /d/one\nCOPY a /d/sub/\n"),
    "copy-merge": Case("FROM scratch\nCOPY dir /d\nCOPY empty /d/sub\n"),
    "copy-twice": Case("FROM scratch\nCOPY dir /d\nCOPY dir /d\nCOPY a /d/\n"),
    "copy-links": Case("FROM scratch\nCOPY dir/link /l\nCOPY to-dir /todir/\nCOPY to-a /toa\n"),
    "copy-through-a-link": Case("FROM tiny\nRUN ln -s /real /alias && mkdir /real\nCOPY a /alias/\nCOPY dir /alias/dir\nCOPY b.txt /alias/name\n", core=True),
    "copy-relative": Case("FROM scratch\nCOPY a relative\nWORKDIR /w\nCOPY a here\nCOPY a ./x/\nCOPY a ../up\n"),
    "copy-modes": Case("FROM scratch\nCOPY --chmod=4755 a /suid\nCOPY --chmod=1777 empty /sticky\nCOPY --chmod=0 b.txt /none\n"),
    "chown": Case("FROM scratch\nCOPY --chown=5:6 dir /owned\nCOPY --chown=7 a /seven\n", core=True),
    "chown-names": Case("FROM tiny\nCOPY --chown=daemon:adm dir /owned\nCOPY --chown=nobody a /one/two\nCOPY --chown=daemon:77 a /mixed\n"),
    "chown-variable": Case("FROM tiny\nARG WHO=daemon\nCOPY --chown=$WHO:${WHO} a /owned\n"),
    "chmod": Case("FROM scratch\nCOPY --chmod=640 a b.txt /modes/\n"),
    "chmod-dir": Case("FROM scratch\nCOPY --chmod=751 dir /modes\n"),
    "copy-link-flag": Case("FROM tiny\nCOPY --link a /opt/new/a\nCOPY --link --chown=3:4 --chmod=600 b.txt /opt/b\n",
                           tree={"opt/new": "dir 755 0:0 ", "opt/new/a": "file 644 0:0 a", "opt/b": "file 600 3:4 b"},
                           config={}),
    "copy-odd-names": Case("FROM scratch\nCOPY . /c/\n", files={"a[b]c": b"1", "ü": b"2", "back\\slash": b"3", "st*r": b"4", "-dash": b"5", "dir with blank/f": b"6"}),
    "copy-hard-links": Case("FROM scratch\nCOPY h /h\n", files={"h/one": b"x", "h/two": ("hard", "h/one"), "other": b""}),
    # --- .dockerignore
    "ignore-all-but": ignoring("*\n!keep\n", core=True),
    "ignore-deep": ignoring("**/*.log\n"),
    "ignore-top": ignoring("*.log\n"),
    "ignore-dir": ignoring("dir/\n"),
    "ignore-dir-but": ignoring("dir/\n!dir/x\n"),
    "ignore-comment": ignoring("# keep\n\nroot\n  # not\n"),
    "ignore-slash": ignoring("/root\n./sub/keep\n"),
    "ignore-question": ignoring("a?b\ntemp-?\n"),
    "ignore-blank": ignoring("tail  \nroot \n"),
    "ignore-itself": ignoring("Dockerfile\n.dockerignore\n"),
    "ignore-order": ignoring("sub\n!sub/deep\nsub/deep/*.log\n!**/root\n", core=True),
    "ignore-set": ignoring("temp-[1]\n**/r??t\n"),
    "ignore-dots": ignoring("sub/../keep\n././dir\n"),
    # --- ADD
    "add-tar": Case("FROM scratch\nADD x.tar /unpacked/\n", core=True),
    "add-compressed": Case("FROM scratch\nADD x.tar.gz /gz/\nADD x.tar.bz2 /bz2/\nADD x.tar.xz /xz/\n"),
    "add-tar-over": Case("FROM tiny\nRUN mkdir -p /o/in && echo old >/o/in/file && echo stays >/o/in/stays\nADD x.tar /o\n"),
    "add-file": Case("FROM scratch\nADD a /added\nADD a b.txt /two/\n"),
    "add-dir": Case("FROM scratch\nADD dir /added\n"),
    "add-no-archive": Case("FROM scratch\nADD text.gz /text.gz\nADD text.gz /into/\n"),
    "add-chown": Case("FROM scratch\nADD --chown=8:9 --chmod=600 a /owned\n"),
    # --- RUN
    "run-shell": Case("FROM tiny\nRUN echo one >/one && mkdir -p /d/e && chmod 750 /d && echo \"two  blanks\" '$HOME' $HOME >/d/e/two\n", core=True),
    "run-exec": Case('FROM tiny\nRUN ["/bin/sh", "-c", "echo \\"$0\\" $1 $HOME >/out", "a  b", "c"]\nRUN ["touch", "/by-path"]\n'),
    "run-lines": Case("FROM tiny\nRUN echo a \\\n  # a comment\n\n  b \\\n  c >/out \\\n && echo d >>/out\n"),
    "run-removes": Case("FROM tiny\nRUN rm /etc/issue && rm -r /usr/share/tiny\nRUN mkdir /usr/share/tiny && echo new >/usr/share/tiny/new\n", core=True),
    "run-replaces": Case("FROM tiny\nRUN rm -r /usr/share/tiny && echo file >/usr/share/tiny && rm /etc/issue && mkdir /etc/issue\n"),
    "run-renames": Case("FROM tiny\nRUN mv /usr/share/tiny /usr/share/moved && mv /etc/issue /etc/tissue\n"),
    "run-links": Case("FROM tiny\nRUN echo x >/h1 && ln /h1 /h2 && ln -s h1 /s && ln -s /no/where /dangling && mkfifo /fifo && ln /etc/issue /issue2\n",
                      differs={"issue2": ("both names are one file, as in the container; buildah leaves the one of the base out of its layer",
                                          "file 644 0:0 tiny\n (first etc/issue)")}),
    "run-modes": Case("FROM tiny\nRUN touch /suid /plain && chmod 4711 /suid && chmod 0 /plain && mkdir /sticky && chmod 3777 /sticky && chown 12:34 /sticky /etc/issue && umask 077 && touch /masked\n"),
    "run-ids": Case("FROM tiny\nRUN touch /a /b && chown 65534:65535 /a && chown 1000:1000 /b\nRUN chmod 600 /b\n"),
    "run-user": Case("FROM tiny\nUSER 1000:1001\nRUN id -u >/tmp/u; id -g >>/tmp/u; touch /tmp/x; touch /etc/x || echo refused >>/tmp/u\n"),
    "run-user-name": Case("FROM tiny\nUSER daemon\nRUN id -un >/tmp/u; id -gn >>/tmp/u; echo $HOME >>/tmp/u; touch /tmp/x\nUSER root\nRUN id -u >/root-was-here\n", core=True),
    "run-workdir": Case("FROM tiny\nWORKDIR /a\nWORKDIR b\nRUN pwd >where; cd /; touch here\nRUN pwd >again\n"),
    "run-env": Case("FROM tiny\nENV A=1 B=\"two $A\"\nARG C=three\nARG D\nRUN echo \"$A|$B|$C|$D|${E:-unset}\" >/out\n", args={"D": "given"}),
    "run-arg-late": Case("FROM tiny\nRUN echo \"${X:-none}\" >/before\nARG X=1\nRUN echo \"${X:-none}\" >/after\n", args={"X": "2"}),
    "run-shell-instruction": Case('FROM tiny\nSHELL ["/bin/sh", "-ec"]\nRUN echo "$0"; echo a >/a\nRUN false || echo b >/b\n'),
    "run-nothing": Case("FROM tiny\nRUN true\nRUN :\n"),
    "run-many": Case("FROM tiny\n" + "".join(f"RUN echo {i} >/f{i}; rm -f /f{i - 2}\n" for i in range(6))),
    "run-script": Case("FROM tiny\nCOPY --chmod=755 script.sh /bin/\nRUN script.sh one\nRUN rm /bin/script.sh\n"),
    "run-times": Case("FROM tiny\nRUN touch -d '2001-02-03 04:05:06' /old && mkdir /olddir && touch -d '2001-02-03 04:05:06' /olddir\n"),
    "run-unions": Case("FROM tiny\nCOPY dir /d\nRUN echo r >/d/r && rm /d/one\nCOPY a /d/\nRUN rm -r /d/sub && mkdir /d/sub && echo s >/d/sub/s\n", core=True),
    "run-heredoc": Case("FROM tiny\nRUN <<EOF\nset -e\necho \"$HOME\" >/one\nCOPY x y || echo 'FROM z' >/two\nEOF\nRUN echo after >/after\n",
                        tree={"one": "file 644 0:0 /root\n", "two": "file 644 0:0 FROM z\n", "after": "file 644 0:0 after\n"}, core=True),
    "run-heredoc-tabs": Case("FROM tiny\nRUN <<-'EOF'\n\techo tabs >/out\n\tcat <<X >>/out\n\t$HOME\n\tX\n\tEOF\n",
                             tree={"out": "file 644 0:0 tabs\n/root\n"}),
    "run-heredoc-two": Case("FROM tiny\nRUN cat <<A >/a && cat <<\"B\" >/b\n$HOME\nA\n$HOME\nB\n", tree={"a": "file 644 0:0 /root\n", "b": "file 644 0:0 $HOME\n"}),
    "run-heredoc-interpreter": Case("FROM tiny\nRUN <<EOF\n#!/bin/busybox sh\necho \"$0\" | grep -c /  >/out\nEOF\n", tree={"out": "file 644 0:0 1\n"}),
    "run-heredoc-pipe": Case("FROM tiny\nRUN <<EOF cat >/out\nline 1\n  line 2\nEOF\n", tree={"out": "file 644 0:0 line 1\n  line 2\n"}),
    "copy-heredoc": Case("FROM scratch\nARG N=world\nCOPY <<EOF /greeting\nhello $N\n\"quoted\" 'single' \\$N\nEOF\nCOPY --chmod=700 --chown=1:2 <<'A' <<B /dir/\n$N\nA\n$N\nB\n",
                         tree={"greeting": "file 644 0:0 hello world\n\"quoted\" 'single' $N\n", "dir": "dir 755 1:2 ", "dir/A": "file 700 1:2 $N\n",
                               "dir/B": "file 700 1:2 world\n"}, core=True),
    "add-heredoc": Case("FROM scratch\nADD <<EOF /x\ntext\nEOF\n", tree={"x": "file 644 0:0 text\n"}),
    # --- ARG and ENV
    "args": Case("FROM scratch\nARG WHERE=/from-arg\nENV NAME=file$WHERE\nCOPY a ${WHERE}/${NAME:-none}\n", core=True),
    "arg-before-from": Case("ARG BASE=tiny\nARG DIR=/global\nFROM $BASE\nRUN echo \"[$DIR]\" >/unseen\nARG DIR\nCOPY a $DIR/\n", core=True),
    "arg-given-base": Case("ARG BASE=nonsense\nFROM ${BASE}\nRUN echo x >/x\n", args={"BASE": "tiny"}),
    "arg-stages": Case("FROM scratch AS one\nARG A=1\nENV V=$A\nFROM scratch\nARG A\nENV V=[$A]\nCOPY a /a\n"),
    "arg-env": Case("FROM scratch\nARG X=arg\nENV X=env\nARG X=again\nENV Y=$X\nCOPY a /a\n", args={"X": "given"}),
    "arg-empty": Case("FROM scratch\nARG X=\nARG Y\nENV A=[$X] B=[$Y] C=${X:-d}\nCOPY a /a\n"),
    "arg-unset": Case("FROM scratch\nARG X=\nARG Y\nENV A=${X-d} B=${Y-d} C=${X+s} D=${Y+s}\nCOPY a /a\n",
                      tree={"a": "file 644 0:0 a"}, config={"Env": {"A": "", "B": "d", "C": "s", "D": ""}}),
    "arg-many": Case("FROM tiny\nARG A=1 B=2 C\nENV ALL=$A$B$C\nRUN echo $ALL >/out\n", args={"C": "3"}),
    "env-forms": Case("FROM scratch\nENV A=1 B=\"two words\" C=three\\ words D='$A'\nENV OLD the old  form\nENV E=$A$B F=${A}x\nCOPY a /a\n", core=True),
    "env-same-line": Case("FROM scratch\nENV A=1\nENV A=2 B=$A\nENV C=$A\nCOPY a /a\n"),
    "env-quotes": Case("FROM scratch\nENV A=\"a\\\"b\" B='a\"b' C=\"it's\" D=a\\\"b E=\"\\$A\" F=\\$A\nCOPY a /a\n"),
    "env-modifiers": Case("FROM scratch\nENV X=val E=\nENV A=${X:-d} B=${N:-d} C=${X:+alt} D=${N:+alt} F=${E:-d} G=${N:-${X}} H=${E:+alt} I=${X:+$X$X}\nCOPY a /a\n"),
    "env-patterns": Case("FROM scratch\nENV P=/a/file.tar.gz\nENV A=${P#*/} B=${P##*/} C=${P%.*} D=${P%%.*} E=${P/a/b} F=${P//a/b}\nCOPY a /a\n",
                         tree={"a": "file 644 0:0 a"}, config={"Env": {"P": "/a/file.tar.gz", "A": "a/file.tar.gz", "B": "file.tar.gz",
                                                                        "C": "/a/file.tar", "D": "/a/file", "E": "/b/file.tar.gz", "F": "/b/file.tbr.gz"}}),
    "env-everywhere": Case("FROM scratch\nENV D=/dir U=12 P=90 S=INT L=label\nWORKDIR $D/w\nUSER $U:${U}\nEXPOSE $P ${P}1/udp\nSTOPSIGNAL $S\nLABEL \"$L\"=\"$L x\"\n"
                           "VOLUME $D/v\nCOPY a $D/\nADD b.txt ${D}/b\n"),
    "env-lines": Case("FROM scratch\nENV A=1 \\\n    B=2 \\\n# comment\n    C=3\nCOPY a /a\n"),
    "platform-args": Case("FROM tiny\nARG TARGETOS TARGETARCH TARGETPLATFORM BUILDPLATFORM\nARG TARGETVARIANT\nRUN echo \"$TARGETOS/$TARGETARCH $TARGETPLATFORM [$TARGETVARIANT]\" >/out; test -n \"$BUILDPLATFORM\"\n",
                          tree={"out": "file 644 0:0 linux/amd64 linux/amd64 []\n"}),
    # --- stages
    "stages": Case("FROM scratch AS first\nCOPY dir /d\nFROM scratch AS last\nCOPY --from=0 /d/sub /sub\nCOPY --from=first /d/one /renamed\n", core=True),
    "stage-of-stage": Case("FROM tiny AS base\nENV A=1\nWORKDIR /w\nUSER 5\nFROM base AS two\nRUN echo \"$A $(pwd) $(id -u)\" >/tmp/out\nFROM two\nENV B=$A\n"),
    "stage-target": Case("FROM scratch AS one\nCOPY a /one\nFROM scratch AS two\nCOPY missing /never\n", target="one"),
    "stage-same-name": Case("FROM scratch AS x\nCOPY a /one\nFROM scratch AS x\nCOPY a /two\nFROM scratch\nCOPY --from=x /two /b\n", tree={"b": "file 644 0:0 a"}),
    "stage-case": Case("FROM scratch AS Mixed\nCOPY a /a\nFROM scratch\nCOPY --from=mixed /a /b\n", tree={"b": "file 644 0:0 a"}),
    "stage-copies": Case("FROM tiny AS made\nRUN mkdir -p /out/d && echo x >/out/d/x && chmod 600 /out/d/x && chown -R 3:4 /out && ln -s d/x /out/l && ln /out/d/x /out/d/y\nFROM scratch\n"
                         "COPY --from=made /out /out\nCOPY --from=made --chown=9:9 /out/d /mine\nCOPY --from=made /out/l /l\nCOPY --from=made /out/d/* /g/\n", core=True),
    "stage-removed": Case("FROM tiny AS made\nRUN mkdir /d && echo 1 >/d/1 && echo 2 >/d/2\nRUN rm /d/1 && echo 3 >/d/3\nFROM scratch\nCOPY --from=made /d /d\n"),
    "stage-from-image": Case("FROM scratch\nCOPY --from=tiny /etc/passwd /users\nCOPY --from=tiny /usr/share/tiny /t\n"),
    # --- configuration
    "config": Case('FROM scratch\nENV A=1 B="two three"\nLABEL l=v\nEXPOSE 80\nUSER 1:2\nWORKDIR /x\nENTRYPOINT ["e"]\nCMD ["c", "d"]\nSTOPSIGNAL TERM\n', core=True),
    "config-shell": Case("FROM scratch\nCOPY a /a\nENTRYPOINT exec top -b\nCMD echo $HOME 'x y'\n"),
    "config-reset": Case('FROM scratch AS base\nCOPY a /a\nENTRYPOINT ["one"]\nCMD ["two"]\nFROM base\nENTRYPOINT ["three"]\n'),
    "config-cmd-only": Case('FROM scratch AS base\nCOPY a /a\nENTRYPOINT ["one"]\nFROM base\nCMD ["two"]\n'),
    "config-cmd-first": Case('FROM scratch AS base\nCOPY a /a\nCMD ["of the base"]\nFROM base\nCMD ["mine"]\nENTRYPOINT ["after"]\n', core=True),
    "config-empty": Case("FROM tiny\nCMD [\"x\"]\nENTRYPOINT []\nCMD []\n",
                         tree={}, config={"Cmd": [], "Entrypoint": []}),
    "config-labels": Case("FROM scratch\nCOPY a /a\nLABEL one=1 \"two words\"=\"a b\"\nLABEL multi=\"line \\\nmore\" one=2\nLABEL e=\n"),
    "config-expose": Case("FROM scratch\nCOPY a /a\nEXPOSE 80 443/tcp 53/udp\nEXPOSE 8000-8002\n",
                          tree={"a": "file 644 0:0 a"}, config={"ExposedPorts": {p: {} for p in ("80/tcp", "443/tcp", "53/udp", "8000/tcp", "8001/tcp", "8002/tcp")}}),
    "config-volume": Case("FROM scratch\nCOPY a /a\nVOLUME /v1 /v2\nVOLUME [\"/v3\", \"/with blank\"]\n",
                          differs={p: ("buildah makes directories of volumes named in JSON; BuildKit makes none", None) for p in ("v3", "with blank")}),
    "config-health": Case("FROM tiny\nHEALTHCHECK --interval=5m --timeout=3s --start-period=1m30s --retries=4 CMD test -e /x || exit 1\n"),
    "config-health-exec": Case('FROM tiny\nHEALTHCHECK --interval=1500ms CMD ["test", "-e", "/x"]\n'),
    "config-health-none": Case("FROM tiny\nHEALTHCHECK NONE\n"),
    "config-onbuild": Case("FROM tiny\nONBUILD RUN echo hi >/x\nONBUILD COPY . /app\n",
                           tree={}, config={"OnBuild": ["RUN echo hi >/x", "COPY . /app"]}),
    "config-user-dir": Case("FROM tiny\nUSER daemon\nWORKDIR /home/here\n"),
    "config-maintainer": Case("FROM tiny\nMAINTAINER Some One <one@example.com>\nRUN true\n"),
    # --- the text
    "text-lower-case": Case("from scratch as x\ncopy a /a\nfrom scratch\ncopy --from=x /a /b\nenv A=1\n"),
    "text-indented": Case("  \n# c\n  FROM scratch\n\t COPY a /a\n   ENV   A=1\n"),
    "text-crlf": Case("FROM tiny\r\nENV A=1 \\\r\n    B=2\r\nRUN echo $A$B >/out\r\nCOPY a /a\r\n", core=True),
    "text-escape": Case("# escape=`\nFROM tiny\nRUN echo one `\n  two >/out\nENV A=c:\\dir\nCOPY a `\n  /a\n",
                        differs={"Env": ("a backslash is text then, as the reference has it; buildah takes it away", ["PATH=/bin", "A=c:\\dir"])}),
    "text-syntax": Case("# syntax=docker/dockerfile:1\n# check=skip=all\nFROM scratch\nCOPY a /a\n"),
    "text-no-newline": Case("FROM scratch\nCOPY a /a"),
    "text-comments": Case("# one\nFROM scratch\n# two\nCOPY a \\\n# three\n  /a\n#four\nENV A=#notacomment\n"),
    "text-trailing-escape": Case("FROM tiny\nRUN echo a >/a && \\\n\n\n  echo b >/b\n"),
    "text-bom": Case("\ufeffFROM scratch\nCOPY a /a\n", tree={"a": "file 644 0:0 a"}),
    "onbuild-runs": Case("FROM triggering\nRUN cat /trigger >/seen\n", tree={"trigger": "file 644 0:0 pulled\n", "seen": "file 644 0:0 pulled\n", "app": "dir 755 0:0 ",
                                                                               "app/a": "file 644 0:0 a"}, files={"a": b"a"}, config={"OnBuild": None}),
    "workdir": Case("FROM scratch\nWORKDIR /w\nWORKDIR sub\nCOPY a .\nCOPY b.txt ./named\n", core=True),
    "workdir-odd": Case("FROM scratch\nENV X=v\nWORKDIR /a//b/../$X/\nCOPY a .\nWORKDIR /\nWORKDIR rel/./x\nCOPY b.txt .\n"),
    "workdir-there": Case("FROM tiny\nRUN mkdir /mine && chown 3:4 /mine && chmod 700 /mine\nWORKDIR /mine\nWORKDIR sub\nRUN touch x\n"),
    # --- odd forms
    "odd-blank-after-escape": Case("FROM tiny\nRUN echo a >/a && \\  \n  echo b >/b\nENV A=1 \\\t\n  B=2\n"),
    "odd-tabs": Case("FROM\ttiny\nRUN\techo tab >/t\nENV\tA=1\tB=2\nCOPY\ta\t/copied\n"),
    "odd-json-that-is-none": Case("FROM tiny\nCMD ['single', 'quotes']\nENTRYPOINT [\"unclosed\"\nRUN [ -e /bin/sh ] && echo shell >/shell\n"),
    "odd-json-escapes": Case('FROM tiny\nRUN ["/bin/sh", "-c", "printf \'a\\tb\\\\\\\\n\' >/out"]\nCMD [ "with \\"quotes\\"" , "\\u00fc" ]\n'),
    "odd-env-signs": Case("FROM scratch\nCOPY a /a\nENV A==b B=a=b=c C=\"x\"\"y\" D='a'b\"c\" E=\nENV F=a\\\nb\n"),
    "odd-env-one": Case("FROM scratch\nCOPY a /a\nENV A  b = c  d\nENV B \"quoted words\" more\n"),
    "odd-labels": Case("FROM scratch\nCOPY a /a\nARG V=1.2\nLABEL version=$V \"with.dots\"='$V' multi=a\\ b\nLABEL version=\"$V-2\"\n"),
    "odd-signals": Case("FROM scratch\nCOPY a /a\nSTOPSIGNAL 9\n"),
    "odd-from-forms": Case("ARG B=ti\nARG E=ny\nFROM ${B}${E} AS One\nRUN echo 1 >/1\nFROM one\nRUN cat /1 >/2\n", tree={"1": "file 644 0:0 1\n", "2": "file 644 0:0 1\n"}),
    "odd-default-of-default": Case("FROM tiny\nARG A=1\nARG B=${A}2\nARG C=${NOT:-$B}3\nRUN echo $A $B $C >/out\n", args={"A": "9"}),
    "odd-scratch-alone": Case("FROM scratch\nLABEL only=this\n", tree={}, config={"Labels": {"only": "this"}}),
    "odd-directives": Case("#EsCape = `\n# not a directive any more: \n#syntax=x\nFROM tiny\nRUN echo a`\n  b >/out\n", tree={"out": "file 644 0:0 a b\n"}),
    "odd-late-directive": Case("# a comment\n# escape=`\nFROM tiny\nRUN echo a \\\n  b >/out\n"),
    "odd-shell": Case("FROM tiny\nSHELL [\"/bin/sh\", \"-xec\"]\nRUN false || echo went on >/out; echo \"$-\" | grep -c x >>/out\nCMD top\nSHELL [\"/bin/busybox\", \"sh\", \"-c\"]\nRUN echo $0 >/zero\nENTRYPOINT end\n",
                      differs={"Cmd": ("with the shell that SHELL says, as the reference has it", ["/bin/sh", "-xec", "top"]),
                               "Entrypoint": ("the same", ["/bin/busybox", "sh", "-c", "end"])}),
    "odd-user-group": Case("FROM tiny\nUSER daemon:adm\nRUN id -u >/tmp/u; id -g >>/tmp/u\nUSER 7\nRUN id -u >/tmp/v; id -g >>/tmp/v\nUSER root\nRUN id -u >/tmp/w\n"),
    "odd-workdir-user": Case("FROM tiny\nWORKDIR /home\nWORKDIR ./a b\nRUN pwd >/out\n"),
    "odd-health": Case("FROM tiny\nHEALTHCHECK --timeout=1h2m3s500ms --retries=2 CMD [\"a\"]\nHEALTHCHECK CMD b\n"),
    "odd-copy-dots": Case("FROM scratch\nWORKDIR /w/x\nCOPY ./a ../up\nCOPY dir/../b.txt .\nCOPY dir/./sub/ ./s/\n"),
    "odd-copy-root": Case("FROM scratch\nCOPY / /all/\nCOPY /dir/one /from-root\n"),
    "odd-chown-tar": Case("FROM scratch\nADD --chown=3:4 x.tar /t/\n",
                          differs={"t/in": ("a directory that the archive does not name is root's, as in BuildKit", "dir 755 0:0 ")}),
    "odd-many-args": Case("FROM scratch\nARG N\nENV V=${N:+set}\nCOPY a /${V:-unset}/a\n", args={"N": ""}),
}
