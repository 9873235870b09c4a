# The whole image copied by tar, cp and rsync: what was one file by several names is still one, and nothing else is.
# as: root
cd "$(mktemp -d)"
mkdir by-tar by-cp by-rsync
tar -C / -cf - usr/bin usr/lib/git-core usr/share/zoneinfo usr/share/perl | tar -C by-tar -xf -
mkdir by-cp/usr by-rsync/usr
cp -a /usr/bin /usr/lib/git-core by-cp/usr
rsync -aHR /usr/bin /usr/share/zoneinfo by-rsync
(cd / && find usr/bin usr/share/zoneinfo -type f -links +1 -printf '%i %p\n' | sort -k2 | awk '{ if (!($1 in n)) n[$1] = ++m; print n[$1], $2 }') >links
for copy in by-tar by-rsync; do
    (cd $copy && find usr/bin usr/share/zoneinfo -type f -links +1 -printf '%i %p\n' | sort -k2 | awk '{ if (!($1 in n)) n[$1] = ++m; print n[$1], $2 }') >links.$copy
    cmp links links.$copy
done
[ "$(wc -l <links)" -gt 5 ]
diff -r --no-dereference /usr/bin by-tar/usr/bin
diff -r --no-dereference /usr/bin by-cp/usr/bin
diff -r --no-dereference /usr/share/zoneinfo by-rsync/usr/share/zoneinfo
[ "$(getcap by-cp/usr/bin/ping /usr/bin/ping | grep -c cap_net_raw)" = 2 ]
