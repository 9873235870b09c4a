/*
 * fs_proto.h - control <-> file helper in a sandbox: what the helper's stdin and stdout carry beside plain content
 *
 * All of it is asked for by members of the operation's JSON; without them the helper behaves as its other callers know
 * it (content on stdin until end of file, content on stdout).
 *
 *   "require_commit": true    (WriteFile, TarIn) stdin is frames: u32 little-endian length and as many bytes; length
 *                             FS_FRAME_ALIVE has none and is a sign of life; length FS_FRAME_COMMIT ends the content.
 *                             End of file before it: nothing of a WriteFile replaces anything, temporary files are
 *                             removed, error_kind "Incomplete".
 *   "window": N               (ReadFile, TarOut) stdin is signs, a byte each: FS_SIGN_ALIVE, FS_SIGN_CREDIT. At most N
 *                             bytes are written to stdout ahead of credit; each FS_SIGN_CREDIT gives N/2 more. (Output
 *                             that no reader takes is kept outside the sandbox, which must stay small.) End of file:
 *                             nobody wants the output any more.
 *   "silence_s": S            with either, and for Watch (stdin is signs there): the helper ends when it has to wait for
 *                             stdin, or is watching, and nothing came for so long: its caller is gone for good.
 *   "header": true            (ReadFile) before the content one line of JSON with the whole file's size, mode bits and
 *                             what is going to follow: {"size":N,"mode":420,"offset":A,"length":L}. "suffix": N in
 *                             place of offset asks for the last N bytes. An offset at or past the end of a file that is
 *                             not empty is error_kind "InvalidRange". Files whose size is 0 in stat (as in /proc) are
 *                             read to their end; length is null then.
 *
 *   "ready": true             (Watch) the first line is {"event_type":"Ready","paths":[]}, once nothing can be missed.
 *
 * WriteFile answers {"created":bool,"size":N}.
 */
#ifndef QS_IPC_FS_PROTO_H
#define QS_IPC_FS_PROTO_H

#define FS_FRAME_COMMIT 0u
#define FS_FRAME_ALIVE 0xffffffffu
#define FS_FRAME_MAX (1024 * 1024)
#define FS_SIGN_ALIVE 'k'
#define FS_SIGN_CREDIT 'a'

/* Where Trust leaves the certificate alone, and behind those of the image. */
#define FS_TRUST_AUTHORITY "/etc/quicksand/authority.pem"
#define FS_TRUST_BUNDLE "/etc/quicksand/authorities.pem"
#define FS_TRUST_JAVA "/etc/quicksand/authorities.jks"

#endif
